//! pgoutput
