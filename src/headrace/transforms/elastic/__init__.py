# SPDX-License-Identifier: Apache-2.0
"""Elastic deformation: the transform, and where it moves points (`deformation`)."""

from headrace.transforms.elastic._transform import ElasticTransform

__all__ = ["ElasticTransform"]
