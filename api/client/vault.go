package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/client/seal"
)

// Vault stores encrypted files in a bucket. The nodes see ciphertext, the size of each object,
// and storage keys that do not reveal names. The names are in encrypted indexes, one for each
// folder. A name is a path without a leading slash in its shortest form (see seal.ErrPath), such
// as photos/beach.jpg. The name of a new file must satisfy CheckName. A Vault is safe for
// concurrent use, also by several programs.
//
// NewVault returns the Vault of an owner. OpenShare returns the Vault of a recipient, who can
// access only the shared folder or file, by the same names as the owner.
type Vault struct {
	client   *Client
	bucket   string
	identity *seal.Identity // nil for a recipient
	grant    *seal.Grant    // nil for the owner
	to       seal.PublicKey // key of the owner, for which data keys are wrapped
	folders  seal.FolderKey // key of the whole bucket, or of the shared folder

	mu      sync.Mutex
	indexes map[string]*seal.Index // indexes of folders, by absolute path
	known   map[string]bool        // folders that the index of their parent names
}

// NewVault returns a Vault for the files of an identity in a bucket. With hybrid, the Vault wraps
// the data keys of new files for the post-quantum key of the identity. Readers without support
// for such keys reject these files.
func (c *Client) NewVault(bucket string, identity *seal.Identity, hybrid bool) (*Vault, error) {
	folders, err := identity.FolderKey(bucket)
	if err != nil {
		return nil, err
	}
	v := &Vault{
		client: c, bucket: bucket, identity: identity, to: identity.PublicKey(), folders: folders,
		indexes: map[string]*seal.Index{}, known: map[string]bool{"/": true},
	}
	if hybrid {
		v.to = identity.HybridPublicKey()
	}
	return v, nil
}

// absolute returns the absolute path of a name, which package seal requires.
func absolute(name string) string { return "/" + name }

// CheckName returns an error if no file of this name can be stored, because the name is not in
// its shortest form, or because recipients of a share would reject it: an error of
// seal.CheckPath. For the Vault of a recipient it is an error of seal.Grant.Allow for writing.
// Upload, UploadFile and Push call CheckName before they read a file.
func (v *Vault) CheckName(name string) error {
	if v.grant != nil {
		return v.allow(absolute(name), seal.Write)
	}
	if err := seal.CheckPath(absolute(name)); err != nil {
		return fmt.Errorf("s3://%s/%s: %w", v.bucket, name, err)
	}
	return nil
}

// split returns the folder and the last segment of an absolute path.
func split(p string) (folder, name string) { return path.Dir(p), path.Base(p) }

// index returns the index of a folder.
func (v *Vault) index(folder string) (*seal.Index, error) {
	if v.single() {
		return nil, fmt.Errorf("%w: one file is shared", seal.ErrPathScope)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if x := v.indexes[folder]; x != nil {
		return x, nil
	}
	key, err := v.folders.Folder(folder)
	if err != nil {
		return nil, err
	}
	x := seal.NewIndex(&indexStore{v.client, v.bucket}, v.bucket, key, "")
	v.indexes[folder] = x
	return x, nil
}

// record adds files of one folder to the index of the folder, and the folder to the index of its
// parent. If a file replaces one with another storage key, record removes the object of the old
// one.
func (v *Vault) record(ctx context.Context, folder string, entries ...seal.Entry) error {
	x, err := v.index(folder)
	if err != nil {
		return err
	}
	replaced, err := x.Replace(ctx, entries...)
	if err != nil {
		if err = v.denied(err); !errors.Is(err, ErrRevoked) {
			err = fmt.Errorf("index of %s: %w", folder, err)
		}
		return err
	}
	for i, old := range replaced {
		if old.StorageKey == entries[i].StorageKey {
			continue
		}
		if err := v.removeObject(ctx, old.StorageKey); err != nil && !errors.Is(err, ErrDenied) {
			return err
		}
	}
	v.mu.Lock()
	known := v.known[folder]
	v.mu.Unlock()
	if known {
		return nil
	}
	above, name := split(folder)
	if err := v.record(ctx, above, seal.Entry{Name: name + "/"}); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known[folder] = true
	return nil
}

// List returns the entries of a folder, ordered by name; "" is the whole bucket. The name of a
// subfolder ends in "/".
func (v *Vault) List(ctx context.Context, folder string) ([]seal.Entry, error) {
	p := absolute(strings.Trim(folder, "/"))
	if err := v.allow(p, seal.Read); err != nil {
		return nil, err
	}
	x, err := v.index(p)
	if err != nil {
		return nil, err
	}
	list, err := x.List(ctx)
	return list, v.denied(err)
}

// Entries returns the files and subfolders of a folder, ordered by name. The folder is the part
// of prefix up to its last "/"; only names that begin with prefix are returned. Key is the whole
// name, and that of a folder ends in "/".
//
// With recursive, Entries returns all files in the folder and in its subfolders, and no folders,
// except those whose names a recipient must reject.
//
// If a single file is shared, Entries returns that file for every prefix. If there are no names,
// and all encrypted objects in the bucket belong to other identities, the error is ErrOtherKeys.
func (v *Vault) Entries(ctx context.Context, prefix string, recursive bool) iter.Seq2[Object, error] {
	if v.single() {
		return func(yield func(Object, error) bool) { yield(v.sharedFile(ctx)) }
	}
	folder, begin := "", prefix
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		folder, begin = prefix[:i+1], prefix[i+1:]
	}
	return func(yield func(Object, error) bool) {
		found := false
		v.entries(ctx, folder, begin, recursive, func(o Object, err error) bool {
			found = true
			return yield(o, err)
		})
		if found {
			return
		}
		if err := v.othersOnly(ctx); err != nil {
			yield(Object{}, err)
		}
	}
}

func (v *Vault) entries(ctx context.Context, folder, begin string, recursive bool, yield func(Object, error) bool) bool {
	list, err := v.List(ctx, folder)
	if err != nil {
		return yield(Object{}, err)
	}
	for _, e := range list {
		if !strings.HasPrefix(e.Name, begin) {
			continue
		}
		o := Object{Bucket: v.bucket, Key: folder + e.Name, Size: e.Size, Modified: e.Modified, BLAKE3: Hash(e.Hash).String()}
		if strings.HasSuffix(e.Name, "/") {
			if recursive && v.allow(absolute(strings.TrimSuffix(o.Key, "/")), seal.Read) == nil {
				if !v.entries(ctx, o.Key, "", true, yield) {
					return false
				}
				continue
			}
			o = Object{Bucket: v.bucket, Key: o.Key}
		}
		if !yield(o, nil) {
			return false
		}
	}
	return true
}

// Remove removes a file. Removing a file that does not exist is no error.
func (v *Vault) Remove(ctx context.Context, name string) error {
	if err := v.allow(absolute(name), seal.Delete); err != nil {
		return err
	}
	key, err := v.locate(ctx, absolute(name))
	if errors.Is(err, seal.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := v.removeObject(ctx, key); err != nil {
		return v.denied(err)
	}
	folder, base := split(absolute(name))
	x, err := v.index(folder)
	if err != nil {
		return err
	}
	return v.denied(x.Remove(ctx, base))
}

// removeObject removes the object with the storage key of an index entry. It ignores a storage
// key that does not begin with filePrefix, because a recipient can write entries with any key.
func (v *Vault) removeObject(ctx context.Context, key string) error {
	if !strings.HasPrefix(key, filePrefix) {
		return nil
	}
	return v.client.Remove(ctx, v.bucket, key)
}

// Upload stores the content of src as a file. Content of more than SinglePut bytes is sent in
// parts.
func (v *Vault) Upload(ctx context.Context, name string, src io.Reader, o UploadOptions) error {
	if err := v.CheckName(name); err != nil {
		return err
	}
	first, err := fill(src, make([]byte, 0, SinglePut))
	if err != nil {
		return err
	}
	object := v.object(name, o)
	if len(first) < cap(first) { // src has ended
		digest, err := seal.DigestOf(bytes.NewReader(first))
		if err != nil {
			return err
		}
		object.Digest = &digest
	}
	e, entry, err := v.encryption(ctx, &object)
	if err != nil {
		return err
	}
	ciphertext := e.Reader(io.MultiReader(bytes.NewReader(first), src))
	stored := o
	stored.ContentType, stored.Metadata = "", nil
	if v.grant != nil {
		stored.Journal = "" // as in send
	}
	if object.Digest != nil {
		if stored.Metadata, err = metadataOf(e); err != nil {
			return err
		}
	}
	at := object.StorageKey
	if object.Digest == nil {
		if at, err = v.temporary(object); err != nil {
			return err
		}
	}
	sent, err := v.client.Upload(ctx, v.bucket, at, ciphertext, stored)
	if err != nil {
		return v.denied(err)
	}
	if object.Digest == nil {
		err = v.complete(ctx, e, at, sent.ETag, &entry)
	}
	if err == nil {
		folder, _ := split(object.Path)
		err = v.record(ctx, folder, entry)
	}
	if at != object.StorageKey {
		removing, stop := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
		defer stop()
		err = errors.Join(err, v.client.Remove(removing, v.bucket, at))
	}
	return v.denied(err)
}

// complete copies the uploaded object of a stream from the temporary key at to its storage key,
// with the encryption header, which is known only after the whole stream was read. No content is
// transferred. A crash before the copy leaves the previous file in place. complete sets the size
// and hash of entry.
func (v *Vault) complete(ctx context.Context, e *seal.Encryption, at, etag string, entry *seal.Entry) error {
	head, err := e.Header()
	if err != nil {
		return err
	}
	if err := v.client.copySealed(ctx, &Object{Bucket: v.bucket, Key: at, ETag: etag}, entry.StorageKey, head); err != nil {
		return err
	}
	digest, err := e.Digest()
	entry.Size, entry.Hash = digest.Size, digest.Hash
	return err
}

// temporary returns the storage key under which the ciphertext of a stream is uploaded until
// complete copies it. A recipient who may not delete uploads to the final storage key, because
// the recipient could not remove a temporary object.
func (v *Vault) temporary(object seal.Object) (string, error) {
	switch {
	case v.grant == nil:
		return v.identity.StorageKey(seal.RandomUUID, object.Path)
	case v.allow(object.Path, seal.Delete) == nil:
		return v.grant.StorageKey(object.Path)
	}
	return object.StorageKey, nil
}

func (v *Vault) object(name string, o UploadOptions) seal.Object {
	kind := o.ContentType
	if kind == "" {
		kind = TypeOf(name)
	}
	return seal.Object{Path: absolute(name), ContentType: kind, User: o.Metadata, Folder: &v.folders}
}

// encryption starts the encryption of o, and returns it with the index entry of the object. It
// sets the storage key of o.
func (v *Vault) encryption(ctx context.Context, o *seal.Object) (*seal.Encryption, seal.Entry, error) {
	var err error
	if o.StorageKey, err = v.storageKey(ctx, o.Path); err != nil {
		return nil, seal.Entry{}, err
	}
	if o.Modified.IsZero() {
		o.Modified = time.Now()
	}
	e, err := seal.New(v.to, *o)
	if err != nil {
		return nil, seal.Entry{}, err
	}
	_, base := split(o.Path)
	entry := seal.Entry{Name: base, StorageKey: o.StorageKey, Modified: o.Modified}
	if o.Digest != nil {
		entry.Size, entry.Hash = o.Digest.Size, o.Digest.Hash
	}
	return e, entry, nil
}

// metadataOf returns the encryption header of an upload as user metadata.
func metadataOf(e *seal.Encryption) (map[string]string, error) {
	header, err := e.Header()
	if err != nil {
		return nil, err
	}
	metadata := map[string]string{}
	for name, value := range header.Map() {
		metadata[strings.TrimPrefix(name, metadataPrefix)] = value
	}
	return metadata, nil
}

// UploadFile stores the regular file at path. It reads the file twice, because the encryption
// header contains the hash of the content and is sent first. A later call continues an
// interrupted upload, as with Client.UploadFile, but not for the Vault of a recipient.
func (v *Vault) UploadFile(ctx context.Context, name, path string, o UploadOptions) error {
	entry, err := v.send(ctx, name, path, o)
	if err != nil {
		return err
	}
	folder, _ := split(absolute(name))
	return v.record(ctx, folder, entry)
}

// send uploads a file and returns its index entry, which the caller adds to the index.
func (v *Vault) send(ctx context.Context, name, path string, o UploadOptions) (seal.Entry, error) {
	if err := v.CheckName(name); err != nil {
		return seal.Entry{}, err
	}
	f, err := os.Open(path)
	if err != nil {
		return seal.Entry{}, err
	}
	defer func() { _ = f.Close() }() // opened only for reading
	info, err := f.Stat()
	if err != nil {
		return seal.Entry{}, err
	}
	if !info.Mode().IsRegular() {
		return seal.Entry{}, fmt.Errorf("%s is not a regular file", path)
	}
	digest, err := seal.DigestOf(f)
	if err != nil {
		return seal.Entry{}, err
	}
	if v.grant != nil {
		o.Journal = "" // a journal needs the list of uploads, which a recipient has no permission for
	}
	object := v.object(name, o)
	object.Digest, object.Modified = &digest, info.ModTime()
	e, entry, err := v.encryption(ctx, &object)
	if err != nil {
		return seal.Entry{}, err
	}
	src := &sealedParts{
		sections:   sections{file: f, size: digest.Size, modified: info.ModTime(), partSize: sealedPartSize(digest.Size)},
		encryption: e,
	}
	if o.Journal != "" && digest.Size > SinglePut {
		src.resume(v.identity, v.bucket, object.StorageKey, o.Journal)
	}
	stored := o
	stored.ContentType = ""
	if stored.Metadata, err = metadataOf(src.encryption); err != nil {
		return seal.Entry{}, err
	}
	if digest.Size > SinglePut {
		_, err = v.client.uploadParts(ctx, v.bucket, object.StorageKey, src, stored)
	} else {
		_, err = v.client.put(ctx, v.bucket, object.StorageKey, src.whole(), stored)
		err = errors.Join(err, src.changed())
	}
	if errors.Is(err, seal.ErrSourceChanged) {
		err = fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return entry, v.denied(err)
}

// open opens the file name for a download. key is its storage key; if it is empty, open looks it
// up.
func (v *Vault) open(ctx context.Context, name, key string, o DownloadOptions) (*fetching, *seal.Content, error) {
	opener, err := v.opener(absolute(name))
	if err != nil {
		return nil, nil, err
	}
	if key == "" {
		key, err = v.locate(ctx, absolute(name))
		if errors.Is(err, seal.ErrNotFound) {
			err = ErrNotFound
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	f, content, err := v.client.openSealed(ctx, v.bucket, key, opener, absolute(name), o)
	if errors.Is(err, ErrNotFound) {
		err = v.missing(ctx, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, v.denied(err))
	}
	if v.grant != nil {
		f.object.Version = "" // a share covers no version that a request names; the ETag is compared
	}
	return f, content, nil
}

// openSealed opens the encrypted object with a storage key for a download. The path in its
// private metadata must be path, so that a node cannot answer with another file.
func (c *Client) openSealed(ctx context.Context, bucket, key string, with seal.Opener, path string, o DownloadOptions) (*fetching, *seal.Content, error) {
	o.Object = nil // a description from a list has no header
	f, err := c.prepare(ctx, bucket, key, o)
	if err != nil {
		return nil, nil, err
	}
	header, err := headerOf(&f.object)
	if err != nil {
		return nil, nil, fmt.Errorf("get %s: %w", f.name(), err)
	}
	content, err := seal.Open(with, header, key, seal.Options{Path: path})
	if err != nil {
		return nil, nil, fmt.Errorf("get %s: %w", f.name(), err)
	}
	if size, known := content.Size(); !known || size != f.object.Size {
		return nil, nil, fmt.Errorf("get %s: %w: %d bytes are stored", f.name(), seal.ErrTruncated, f.object.Size)
	}
	return f, content, nil
}

// Download writes a file to w. It authenticates each chunk of 256 KiB before it writes the chunk.
// If it returns nil, the whole content has the hash in its private metadata.
func (v *Vault) Download(ctx context.Context, name string, w io.Writer, o DownloadOptions) error {
	return v.download(ctx, name, "", w, o)
}

// download works like Download. If key is not empty, it is the storage key of the object to read.
func (v *Vault) download(ctx context.Context, name, key string, w io.Writer, o DownloadOptions) error {
	f, content, err := v.open(ctx, name, key, o)
	if err != nil {
		return err
	}
	o.begin(content.Metadata().Size)
	return v.denied(v.client.decrypt(ctx, f, 0, f.object.Size, content.Reader, o.reporting(w)))
}

// DownloadFile writes a file to path, as Client.DownloadFile does with an object.
func (v *Vault) DownloadFile(ctx context.Context, name, path string, o DownloadOptions) error {
	f, content, err := v.open(ctx, name, "", o)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // closing a folder loses no data
	in := &incoming{client: v.client, fetching: f, content: content, root: root, name: filepath.Base(path), options: o, durable: true}
	return v.denied(in.run(ctx))
}

// decrypt reads n bytes of ciphertext from the offset off, and writes the plaintext to w. open
// returns a decrypting reader of the given ciphertext.
func (c *Client) decrypt(ctx context.Context, f *fetching, off, n int64, open func(io.Reader) io.Reader, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out, in := io.Pipe()
	fetched := make(chan error, 1)
	go func() {
		err := c.fetch(ctx, f, off, n, in)
		_ = in.CloseWithError(err) // never fails
		fetched <- err
	}()
	_, err := io.Copy(w, open(out))
	_ = out.CloseWithError(err) // never fails; ends the fetch
	if err == nil {
		return <-fetched
	}
	cancel()
	if failure := <-fetched; failure != nil && !errors.Is(failure, context.Canceled) && !errors.Is(failure, err) {
		return failure // the fetch failed first, and cut off the ciphertext
	}
	return err
}
