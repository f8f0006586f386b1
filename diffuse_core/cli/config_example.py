"""The file of settings that `diffuse config init` writes."""

EXAMPLE = """\
# Settings of Diffuse. Take out the `#` before a line to let it count.
#
# A flag counts most, then the environment, then this file, then the default.
# Every option of every command may stand here as it is called there (with - or
# _), but for those of a single call, as --prompt or --json. `diffuse COMMAND
# --help` lists them; `diffuse config show COMMAND` tells what counts now and
# where it comes from; `diffuse config check` reads all of it; `diffuse help
# settings` tells more.

# --- for every command that has the option, and for the app ------------------

# bootstrap = ["192.168.1.20:9440", "sentinel.example.org:9440"]
# network = "ours"
# network-key-file = "~/.config/diffuse/network.key"
# allow = "~/.config/diffuse/friends"
# mdns = false
# state-dir = "~/diffuse"
# cache-dir = "~/models"
# log-level = "info"
# model = "demo"

# --- for one command; it wins over the above ---------------------------------

# [host]
# model = "HuggingFaceTB/SmolLM2-1.7B-Instruct"
# memory = "4GiB"
# threads = 4
# listen = "0.0.0.0:9440"

# [query]
# temperature = 0.7
# stop = ["\\n\\n"]

# [chat]
# system = "Answer briefly."

# [demo]
# hosts = 2

# --- for the terminal app ----------------------------------------------------

# [app]
# theme = "dark"
# no-history = true
"""
