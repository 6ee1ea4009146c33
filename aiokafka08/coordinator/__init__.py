"""What the members of a group say to each other: the embedded protocol "consumer", and assignors.

Names and places are those of aiokafka 0.14, so that assignors of users' own move over by changing
the import. Pure. How members join is in `consumer.membership`.
"""
