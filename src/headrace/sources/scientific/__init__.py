# SPDX-License-Identifier: Apache-2.0
"""Importers of scientific formats: arrays, volumes and images with any number of bands."""
