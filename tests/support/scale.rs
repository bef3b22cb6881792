//! Times and sizes: scaled down in the usual run, as the field problems state them in `cargo xtask test --full`.

/// Set by the part `field` of the full run.
pub const FULL_VARIABLE: &str = "POSTHASTE_TEST_FULL";

/// Whether times and sizes are the stated ones.
pub fn is_full() -> bool {
    std::env::var_os(FULL_VARIABLE).is_some()
}

/// The scaled value, or in the full run the stated one.
pub fn pick<T>(scaled: T, stated: T) -> T {
    if is_full() { stated } else { scaled }
}
