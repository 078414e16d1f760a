"""HTTP layer: connections, bodies, keys and queries. It does not depend on models or the store."""
