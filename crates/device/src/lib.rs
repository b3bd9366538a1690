//! `device`: see ARCHITECTURE.md.
