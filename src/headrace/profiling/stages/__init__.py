# SPDX-License-Identifier: Apache-2.0
"""The measurements of a profile: a loader and a trainer, alone and together; each stage."""
