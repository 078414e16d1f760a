"""The edge: connections, bodies, keys and queries; it knows no model and no store."""
