"""Addresses of the plain register write port.

Used by: rtl.node.sweeper, sw_driver.
"""

#: Write `partition << 16 | model_id`: blocks of the model's current epoch can no longer be found.
MODEL_RETIRE_ADDRESS = 0
