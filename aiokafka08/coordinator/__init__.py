"""The embedded protocol "consumer" of group members, and the partition assignors. Pure.

Names and module paths are those of aiokafka 0.14, so that a user's own assignor needs only another
import.
"""
