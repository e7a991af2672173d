"""What a run keeps in its checkpoint for the driver, and who may use it.

run_record, settings   what fixes a run; what changes in place
columns, generations   payload columns that an upgrade changes; its former checkpoints
control_log, consumed  which files and replicas there are, in which order; files not needed
kafka                  where readers of Kafka continue after an upgrade
lock, lease            one driver at a time; the same where only Spark reaches the checkpoint
remote                 small texts of such a checkpoint
"""
