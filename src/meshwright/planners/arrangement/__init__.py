"""The device of each rank of a layout on an uneven network: data-parallel stages in an order, by several searches."""
