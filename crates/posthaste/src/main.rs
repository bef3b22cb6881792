//! posthaste
fn main() {}
