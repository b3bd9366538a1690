//! Work read off a tile program: operations by unit and bytes across each level.
