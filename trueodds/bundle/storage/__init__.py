"""Storage of published models: a folder, a bucket, or one bundle. `Storage` defines the interface."""
