"""Where jobs run: devices in hosts, links, topologies, presets."""
