"""A network that fills pipeline stages with distant devices: the encoder of a device graph and the pointer to the next device."""
