package web

import "net/http"

// AddressesPath is the path at which the S3 gateway tells the addresses of the other APIs of its node. No bucket
// can have this name.
const AddressesPath = "/.well-known/holdfast"

// Addresses are the URLs of the APIs of a node, as a client reaches them. A URL is empty if the node does not
// serve the API, or serves it only to its own machine and the gateway to others.
type Addresses struct {
	Pinning string `json:"pinning"` // base URL of the Pinning Service API
	Web     string `json:"web"`     // base URL of the web API
}

// TellAddresses returns the handler of AddressesPath. of gets the host and the scheme that the client has used
// for the gateway.
func TellAddresses(of func(host, scheme string) Addresses, limits *Limits) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		return JSON(w, http.StatusOK, of(r.Host, limits.Scheme(r)))
	}
}
