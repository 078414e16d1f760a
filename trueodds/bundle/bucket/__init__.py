"""Published models in a bucket: `s3://bucket/prefix` in place of a folder, with the same files under the same names.

A bucket has no locks and renames nothing, so two things differ from a folder. A version is published once its card lies
there, which is uploaded last. And the audit log decides: its conditional write is the moment at which a change happens,
and the role files (`default`, `shadow`) are written after it, for those who read or copy the bucket with other tools.
"""
