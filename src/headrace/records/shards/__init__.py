# SPDX-License-Identifier: Apache-2.0
"""The shards of a dataset: in a local folder or an object store, and where the index places images in them."""
