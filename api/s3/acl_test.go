package s3

import (
	"net/http"
	"strings"
	"testing"
)

const everybody = `<Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="Group"><URI>` + allUsers + `</URI></Grantee><Permission>READ</Permission></Grant>`

// policyOf returns the access list of a bucket as a client writes it.
func (w *world) policyOf(grants string) string {
	id := string(w.who.Account)
	return `<?xml version="1.0" encoding="UTF-8"?><AccessControlPolicy xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Owner><ID>` + id +
		`</ID><DisplayName>alice</DisplayName></Owner><AccessControlList><Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser"><ID>` + id +
		`</ID><DisplayName/></Grantee><Permission>FULL_CONTROL</Permission></Grant>` + grants + `</AccessControlList></AccessControlPolicy>`
}

// isPublic tells whether a bucket is public by what it and its objects say of it.
func (w *world) isPublic(t *testing.T, bucket string) bool {
	t.Helper()
	status := w.must(t, http.StatusOK, call{method: "GET", path: "/" + bucket + "?policyStatus"}).Body.String()
	public := strings.Contains(status, "<IsPublic>true</IsPublic>")
	for _, path := range []string{"/" + bucket + "?acl", "/" + bucket + "/k?acl"} {
		list := w.must(t, http.StatusOK, call{method: "GET", path: path}).Body.String()
		if strings.Contains(list, "<URI>"+allUsers+"</URI></Grantee><Permission>READ</Permission>") != public || strings.Count(list, "FULL_CONTROL") != 1 {
			t.Errorf("the status is public %v, %s says %s", public, path, list)
		}
	}
	return public
}

// A bucket becomes public or private by each form of access list that S3 has for it: canned, granted in headers,
// or as a policy in the body.
func TestABucketIsPublicByItsAccessList(t *testing.T) {
	w := newWorld(t)
	id := string(w.who.Account)
	w.put(t, "/own/k", "x")
	for _, tc := range []struct {
		name string
		call
		public bool
	}{
		{"canned", call{header: []string{"x-amz-acl: public-read"}}, true},
		{"canned back", call{header: []string{"x-amz-acl: private"}}, false},
		{"canned and an empty body", call{path: "/own?acl=", header: []string{"x-amz-acl: public-read", "Content-MD5: 1B2M2Y8AsgTpgAmY7PhCfg=="}}, true},
		{"private policy", call{body: w.policyOf("")}, false},
		{"public policy", call{body: w.policyOf(everybody)}, true},
		{"what the bucket says itself", call{body: "itself"}, true},
		{"granted", call{header: []string{"x-amz-grant-full-control: id=" + id}}, false},
		{"granted to everybody", call{header: []string{"x-amz-grant-full-control: id=\"" + id + "\"", "x-amz-grant-read: uri=\"" + allUsers + "\""}}, true},
		{"granted twice", call{header: []string{"x-amz-grant-full-control: id=" + id + ",id=" + id, "x-amz-grant-read: id=" + id + " , uri=" + allUsers, "x-amz-grant-write: id=" + id}}, true},
		{"twice in a policy", call{body: w.policyOf(everybody + everybody)}, true},
		{"private in the end", call{body: w.policyOf("")}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.method = "PUT"
			if tc.path == "" {
				tc.path = "/own?acl"
			}
			if tc.body == "itself" {
				tc.body = w.must(t, http.StatusOK, call{method: "GET", path: "/own?acl"}).Body.String()
			}
			if rec := w.must(t, http.StatusOK, tc.call); rec.Body.Len() != 0 {
				t.Errorf("a body: %s", rec.Body)
			}
			if got := w.isPublic(t, "own"); got != tc.public {
				t.Errorf("public: %v", got)
			}
		})
	}
	for bucket, header := range map[string][]string{
		"open": {"x-amz-acl: public-read"}, "shut": {"x-amz-acl: private"}, "none": nil, "owned": {"x-amz-acl: bucket-owner-full-control"},
		"granted": {"x-amz-grant-full-control: id=" + id, "x-amz-grant-read: uri=" + allUsers},
	} {
		t.Run("made "+bucket, func(t *testing.T) {
			w.must(t, http.StatusOK, call{method: "PUT", path: "/" + bucket, header: header})
			w.put(t, "/"+bucket+"/k", "x")
			if got, want := w.isPublic(t, bucket), bucket == "open" || bucket == "granted"; got != want {
				t.Errorf("public: %v", got)
			}
		})
	}
}

// A write is accepted with an access list that is true of its bucket, and an object of a public bucket is still
// refused without credentials. Other lists are in bad.tsv.
func TestAnObjectHasTheAccessListOfItsBucket(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	w.must(t, http.StatusOK, call{method: "PUT", path: "/open", header: []string{"x-amz-acl: public-read"}})
	for bucket, lists := range map[string][]string{
		"open": {"public-read", "bucket-owner-full-control", ""}, "photos": {"private", "bucket-owner-read", "bucket-owner-full-control", ""},
	} {
		for _, acl := range lists {
			header := []string{"x-amz-acl: " + acl}
			w.must(t, http.StatusOK, call{method: "PUT", path: "/" + bucket + "/k", body: "x", header: header})
			w.must(t, http.StatusOK, call{method: "PUT", path: "/" + bucket + "/copy", header: append(header, "x-amz-copy-source: /photos/cat.jpg")})
			w.must(t, http.StatusOK, call{method: "POST", path: "/" + bucket + "/up?uploads", header: header})
			w.must(t, http.StatusNoContent, call{
				method: "POST", path: "/" + bucket, body: formOf("x", field{"key", "k"}, field{"acl", acl}, field{"file", "x"}), header: []string{formHeader},
			})
		}
	}
	if rec := w.do(t, call{method: "GET", path: "/open/k", token: "-"}); rec.Code != http.StatusForbidden {
		t.Errorf("without credentials: %d %s", rec.Code, rec.Body)
	}
}
