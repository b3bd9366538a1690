// Text form; see `Expr`.
