"""Which device gets which rank of a layout on an uneven network: data-parallel stages in an order, found by several searches."""
