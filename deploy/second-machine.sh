# Sourced by scripts that need a second machine, which is a network namespace of its own: sets `space`, its name, and `link`, this machine's
# end of the cable to it. This machine has the address $network.1 there, and the other one $network.2. Needs root and iproute2.
# shellcheck shell=sh disable=SC2154
space=ata-machine-$$
link=ata-$$
ip netns add "$space"
ip link add "$link" type veth peer name inside netns "$space"
ip address add "$network.1/24" dev "$link"
ip link set "$link" up
ip -n "$space" address add "$network.2/24" dev inside
ip -n "$space" link set inside up
ip -n "$space" link set lo up
ip -n "$space" route add default via "$network.1"
