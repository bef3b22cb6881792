//! End-to-end tests, one promise a file.
