//! `cpu`: see ARCHITECTURE.md.
