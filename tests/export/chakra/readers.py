"""A replay of Chakra traces by ASTRA-sim's rules."""

from meshwright.export.chakra.schema import NodeType


def replay(ranks, groups):
    """Finished nodes of each rank under ASTRA-sim's rules for issuing them.

    A node may start when its data and control dependencies have ended. A rank runs one computation and one communication at a
    time, the smallest id first; a receive occupies nothing. A collective ends when all members have started it.
    """
    done = [set() for _ in ranks]
    sent, received, running = set(), [{} for _ in ranks], [None for _ in ranks]
    waiting = {name: {} for name in groups}
    moved = True
    while moved:
        moved = False
        for rank, nodes in enumerate(ranks):
            issued = done[rank] | set(received[rank]) | ({running[rank].id} if running[rank] else set())
            for node in sorted(nodes, key=lambda node: node.id):
                if node.id in issued or not {*node.data_deps, *node.ctrl_deps} <= done[rank]:
                    continue
                values = node.attributes
                if node.type == NodeType.COMP:
                    done[rank].add(node.id)
                elif node.type == NodeType.COMM_RECV:
                    received[rank][node.id] = (values["comm_src"], rank, values["comm_tag"], values["comm_size"])
                elif running[rank] is not None:
                    continue
                elif node.type == NodeType.COMM_SEND:
                    sent.add((rank, values["comm_dst"], values["comm_tag"], values["comm_size"]))
                    done[rank].add(node.id)
                else:
                    running[rank] = node
                    waiting[values["pg_name"]][rank] = node
                moved = True
                break
            for number, message in list(received[rank].items()):
                if message in sent:
                    done[rank].add(number)
                    del received[rank][number]
                    moved = True
        for name, members in groups.items():
            if set(waiting[name]) == set(members):
                assert len({node.name for node in waiting[name].values()}) == 1, "another collective"
                for rank, node in waiting[name].items():
                    done[rank].add(node.id)
                    running[rank] = None
                waiting[name] = {}
                moved = True
    return [len(numbers) for numbers in done]
