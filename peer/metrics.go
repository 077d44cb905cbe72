package peer

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics has the metrics of this package.
type metrics struct {
	unknownPeers  prometheus.Counter
	refused       *prometheus.CounterVec
	unknownServed prometheus.Counter
	blocksServed  prometheus.Counter
	gossipDropped prometheus.Counter
	bytesServed   prometheus.Counter
	blocksPulled  prometheus.Counter
	bytesPulled   prometheus.Counter
	badBlocks     prometheus.Counter

	registered []prometheus.Collector
}

// register adds the metrics and the collectors in more to r.
func (m *metrics) register(r prometheus.Registerer, more []prometheus.Collector) error {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "holdfast", Subsystem: "peer", Name: name, Help: help,
		})
	}
	m.unknownPeers = counter("strangers_cut_total", "Connections to the cluster host cut because the peer is no member.")
	m.refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "holdfast", Subsystem: "peer", Name: "strangers_refused_total",
		Help: "Connections and streams refused because unknown peers had their share of the host, by host.",
	}, []string{"host"})
	m.unknownServed = counter("strangers_served_bytes_total", "Bytes of bitswap messages for unknown peers.")
	m.gossipDropped = counter("gossip_dropped_total", "Messages of members dropped because they send too many.")
	m.blocksServed = counter("blocks_served_total", "Blocks served to members.")
	m.bytesServed = counter("block_bytes_served_total", "Bytes of blocks served to members.")
	m.blocksPulled = counter("blocks_pulled_total", "Blocks pulled from members.")
	m.bytesPulled = counter("block_bytes_pulled_total", "Bytes of blocks pulled from members.")
	m.badBlocks = counter("bad_blocks_total", "Blocks from members that do not match their hash.")
	if r == nil {
		return nil
	}
	for _, c := range append(m.all(), more...) {
		if err := r.Register(c); err != nil {
			m.unregister(r)
			return fmt.Errorf("peer: metrics: %w", err)
		}
		m.registered = append(m.registered, c)
	}
	return nil
}

func (m *metrics) unregister(r prometheus.Registerer) {
	if r == nil {
		return
	}
	for _, c := range m.registered {
		r.Unregister(c)
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.unknownPeers, m.refused, m.unknownServed, m.gossipDropped, m.blocksServed, m.bytesServed, m.blocksPulled, m.bytesPulled, m.badBlocks}
}
