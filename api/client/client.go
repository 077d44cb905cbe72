package client

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sync/semaphore"
)

// Defaults of Options.
const (
	DefaultPatience = time.Minute
	// firstPatience is the patience before any node has answered. It is short, because the
	// endpoints are then probably wrong.
	firstPatience = 5 * time.Second
	defaultRegion = "us-east-1" // the gateway accepts every region in a signature
)

// Timeouts of connections. If one of them passes, the request counts as failed on this node.
const (
	dialTimeout   = 5 * time.Second
	headerTimeout = 2 * time.Minute // time from the end of a request to the first byte of the answer
	expectTimeout = 5 * time.Second // time for which an upload waits until the node wants its body
	stallTimeout  = time.Minute     // longest time in which no byte of a body is sent or received
	idleTimeout   = 90 * time.Second
)

// maxIdleConns is the number of unused connections that the client keeps to each node.
const maxIdleConns = 64

// Options name the cluster that a Client uses, its credentials, and how long it retries.
type Options struct {
	// Endpoints are URLs of the object gateways of nodes, such as https://node1.example.org:9000.
	// At least one URL is needed. A URL without scheme is taken as https.
	Endpoints []string

	// Pinning are URLs of the pinning APIs of nodes, and Console URLs of their consoles, which serve the web
	// API. If one of them is empty, the client asks the gateways for these URLs.
	Pinning, Console []string

	// Token is a Bearer token. Set either Token, or AccessKey and SecretKey, which sign requests.
	Token                string
	AccessKey, SecretKey string

	// Patience is how long the client repeats a request after its first failure. 0 means
	// DefaultPatience. Until a node has answered once, the client repeats for at most 5 s.
	Patience time.Duration

	// Transport sends the requests; nil means that the client makes its own transport.
	Transport http.RoundTripper

	// UserAgent names the program to the nodes; "" means "holdfast-client".
	UserAgent string
}

// Client sends requests to a cluster. A Client is safe for concurrent use.
type Client struct {
	nodes    *nodes
	pinning  *nodes // with the URLs of Options.Pinning; nil: told by the gateways
	web      *nodes // with the URLs of Options.Console; nil: told by the gateways
	by       http.RoundTripper
	patience time.Duration
	stall    time.Duration       // stallTimeout, except in tests
	answered atomic.Bool         // a node has answered at least once
	idle     func()              // closes unused connections
	memory   *semaphore.Weighted // sealedMemory bytes
	buffers  sync.Pool           // a pool of *[]byte
}

// ErrOptions is wrapped by all errors of New.
var ErrOptions = errors.New("bad options")

// New returns a client of the cluster that o describes. It sends no request. Its errors wrap
// ErrOptions.
func New(o Options) (*Client, error) {
	if len(o.Endpoints) == 0 {
		return nil, fmt.Errorf("%w: no endpoint", ErrOptions)
	}
	switch {
	case o.Token != "" && o.AccessKey+o.SecretKey != "":
		return nil, fmt.Errorf("%w: a token and an access key exclude each other", ErrOptions)
	case (o.AccessKey == "") != (o.SecretKey == ""):
		return nil, fmt.Errorf("%w: an access key needs its secret key", ErrOptions)
	}
	c := &Client{patience: o.Patience, stall: stallTimeout, memory: semaphore.NewWeighted(sealedMemory), idle: func() {}}
	if c.patience == 0 {
		c.patience = DefaultPatience
	}
	transport := o.Transport
	if transport == nil {
		own := newTransport()
		transport, c.idle = own, own.CloseIdleConnections
	}
	agent := o.UserAgent
	if agent == "" {
		agent = "holdfast-client"
	}
	c.by = &sender{to: transport, token: o.Token, agent: agent}
	for _, of := range []struct {
		urls []string
		into **nodes
	}{{o.Endpoints, &c.nodes}, {o.Pinning, &c.pinning}, {o.Console, &c.web}} {
		for _, text := range of.urls {
			n, err := newNode(text, o, c.by)
			if err != nil {
				return nil, err
			}
			if *of.into == nil {
				*of.into = new(nodes)
			}
			(*of.into).list = append((*of.into).list, n)
		}
	}
	return c, nil
}

// Close closes unused connections.
func (c *Client) Close() { c.idle() }

func newNode(endpoint string, o Options, by http.RoundTripper) (*node, error) {
	text := endpoint
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("%w: endpoint %q is not a URL such as https://node1.example.org:9000", ErrOptions, endpoint)
	}
	signing := credentials.NewStatic("", "", "", credentials.SignatureAnonymous)
	if o.AccessKey != "" {
		signing = credentials.NewStaticV4(o.AccessKey, o.SecretKey, "")
	}
	core, err := minio.NewCore(u.Host, &minio.Options{
		Creds:        signing,
		Secure:       u.Scheme == "https",
		Transport:    by,
		Region:       defaultRegion,
		BucketLookup: minio.BucketLookupPath,
		MaxRetries:   1, // Client.do repeats requests, on other nodes
	})
	if err != nil {
		return nil, fmt.Errorf("%w: endpoint %q: %w", ErrOptions, endpoint, err)
	}
	return &node{
		endpoint: u.Scheme + "://" + u.Host, core: core,
		by: by, accessKey: o.AccessKey, secretKey: o.SecretKey,
	}, nil
}

func newTransport() *http.Transport {
	dialer := &net.Dialer{
		Timeout:         dialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: headerTimeout,
		IdleConnTimeout:       idleTimeout,
		ExpectContinueTimeout: expectTimeout,
		MaxIdleConnsPerHost:   maxIdleConns,
		DisableCompression:    true, // the caller gets the bytes as they are stored
		WriteBufferSize:       64 << 10,
		ReadBufferSize:        64 << 10,
	}
}
