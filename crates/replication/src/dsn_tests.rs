//! Tests of the module named before `_tests`.
