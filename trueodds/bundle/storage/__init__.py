"""Places where models are published: a folder, a bucket, one bundle. `Storage` says what each of them does."""
