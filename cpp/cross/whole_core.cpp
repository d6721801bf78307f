// SPDX-License-Identifier: Apache-2.0
// A library needs one source; all the others come from the core.
