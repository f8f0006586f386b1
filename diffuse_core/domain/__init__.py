"""The pure domain: no clock, no socket, no asyncio, no torch.

Where to look:

- Words: identity, slices, shapes, records, view, wire and messages, decoding, bundle, codec.
- Channels: noise, network_key, channel (the handshake), sealed_stream (after it), allow_list.
- Nodes that cannot be dialled: relay_messages, relayed_address, reachability (can we be?),
  reservations (at which sentinels), relay (a sentinel's book), circuit_pieces.
- Gossip, how records spread: gossip, and what it is put together from: publisher (our own record),
  announcing, hearing, wants (asking for what we lack), exchange, buckets and reconcile (comparing
  tables), directory and verdicts (what is believed), clocks, allowances, newsqueue, narration.
- Liveness, who is there: liveness, and probes, suspicion, health, agenda, pool, rechecks; bounded
  (tables); roster and members join it to the records. contacts and known_nodes: how nodes are
  found again.
- Placement, who holds what: coverage, planner and fitting (which slice), claims (who yields),
  healing, rearranging and lookout (who moves, when), placing (a Host's life), needs (which model),
  forecast and outlook (what would change).
- Generation: selection (which model), router, session, sampling.
- The picture for screens: observe, machine (figures of this one), model_news (what becomes of
  models), standing, plain_text (a stranger's text, made harmless).
- What people type: sizes.
"""
