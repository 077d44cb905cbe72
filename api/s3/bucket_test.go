package s3

import "testing"

func TestNamesThatAreNoAddressAreTaken(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"1.2.3", "1.2.3.4.5", "1.2.3.a", "1-2.3.4.5", "1234"} {
		w.must(t, 200, call{method: "PUT", path: "/" + name})
	}
}
