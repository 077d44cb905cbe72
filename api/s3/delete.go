package s3

import (
	"net/http"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// maxDelete bounds the body of DeleteObjects, in bytes, as Amazon S3 does.
const maxDelete = 2 << 20

// deleteObjects removes up to state.MaxDeleteKeys objects. Those that nothing is
// asked of but to be gone go in one change, all or none of them.
func (s *surface) deleteObjects(w http.ResponseWriter, r *request) error {
	body, done, err := s.readSmall(w, r, maxDelete)
	if err != nil {
		return err
	}
	defer done()
	all, quiet, err := readDelete(body, state.MaxDeleteKeys)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return malformed("there is no Object")
	}
	failed := make([]error, len(all))
	var plain []string
	seen := make(map[string]bool, len(all))
	for i, d := range all {
		failed[i] = checkKey(d.key)
		simple := failed[i] == nil && d.etag == "" && (d.version == "" || d.version == "null")
		if simple && !seen[d.key] {
			seen[d.key] = true
			plain = append(plain, d.key)
		}
	}
	ctx, cancel := r.soon()
	defer cancel()
	if len(plain) > 0 {
		err = s.objects.DeleteMany(ctx, r.account(), r.bucket, plain)
	} else {
		_, err = s.objects.Bucket(ctx, r.account(), r.bucket)
	}
	if err != nil {
		return err
	}
	for i, d := range all {
		if failed[i] != nil || seen[d.key] {
			continue // with it went every version that there was
		}
		var c state.Condition
		if d.etag != "" {
			tag := unquote(d.etag)
			c.Match = []string{tag[:min(len(tag), maxTagBytes)]}
		}
		failed[i] = s.remove(ctx, r, d, c)
	}
	return s.sendDeleted(w, all, failed, quiet)
}

func (s *surface) sendDeleted(w http.ResponseWriter, all []doomed, failed []error, quiet bool) error {
	x := newXML()
	x.root("DeleteResult")
	for i, d := range all {
		switch {
		case failed[i] != nil:
			e := s.answer(failed[i])
			x.begin("Error")
			x.text("Key", d.key)
			if d.version != "" {
				x.text("VersionId", d.version)
			}
			x.text("Code", string(e.Code))
			x.text("Message", e.Message)
			x.end("Error")
		case !quiet:
			x.begin("Deleted")
			x.text("Key", d.key)
			if d.version != "" {
				x.text("VersionId", d.version)
			}
			x.end("Deleted")
		}
	}
	x.end("DeleteResult")
	return x.send(w, http.StatusOK)
}
