package dag

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"sort"
	"strings"
	"testing"

	chunk "github.com/ipfs/boxo/chunker"
	"github.com/ipfs/boxo/ipld/merkledag"
	mdtest "github.com/ipfs/boxo/ipld/merkledag/test"
	"github.com/ipfs/boxo/ipld/unixfs"
	"github.com/ipfs/boxo/ipld/unixfs/importer/balanced"
	"github.com/ipfs/boxo/ipld/unixfs/importer/helpers"
	uio "github.com/ipfs/boxo/ipld/unixfs/io"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
	mh "github.com/multiformats/go-multihash"

	"github.com/holdfast-ipfs/holdfast/peer/peertest"
)

// lent is a store that lends like the one of a node.
type lent struct{ *peertest.Store }

func (l lent) Read(ctx context.Context, c cid.Cid, _ func(int) []byte) ([]byte, error) {
	b, err := l.Get(ctx, c)
	if err != nil {
		return nil, err
	}
	return b.RawData(), nil
}

// entryOfTar is an entry of a tar stream. A path that ends with a slash is that of a folder.
type entryOfTar struct{ path, content, target string }

func tarOf(t *testing.T, items []entryOfTar) *bytes.Buffer {
	t.Helper()
	out := new(bytes.Buffer)
	w := tar.NewWriter(out)
	for _, i := range items {
		h := &tar.Header{Name: i.path, Size: int64(len(i.content)), Mode: 0o644, Typeflag: tar.TypeReg}
		switch {
		case strings.HasSuffix(i.path, "/"):
			h.Typeflag = tar.TypeDir
		case i.target != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, i.target
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, i.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

func layoutOf(t *testing.T, hash, version string) Layout {
	t.Helper()
	l, err := LayoutOf(hash, version)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func importItems(t *testing.T, as Layout, items []entryOfTar) (lent, Tree) {
	t.Helper()
	s := lent{peertest.NewStore()}
	tree, err := ImportTar(t.Context(), as, tarOf(t, items), func(b []blocks.Block) error { return s.PutMany(t.Context(), b) })
	if err != nil {
		t.Fatal(err)
	}
	return s, tree
}

// many returns this many small files in one folder.
func many(prefix string, n int) (items []entryOfTar) {
	for i := range n {
		items = append(items, entryOfTar{path: fmt.Sprintf("%s%0200d", prefix, i), content: fmt.Sprint(i)})
	}
	return items
}

// odd is a folder with odd names, empty files and folders, links, and files of several blocks.
func odd() []entryOfTar {
	big := string(peertest.Bytes(3, 3*ChunkSize+17))
	return slices.Concat([]entryOfTar{
		{path: "empty/"}, {path: "empty file"}, {path: "ü\n\"x\"\\"}, {path: "a/"}, {path: "a/b/"},
		{path: "a/b/" + strings.Repeat("long", 60), content: "deep"}, {path: "a/big", content: big}, {path: "a/again", content: big[:kuboChunkSize+1]},
		{path: "link", target: "a/b"}, {path: "sharded/"},
	}, many("sharded/", 2_000), []entryOfTar{{path: "z", content: "last"}})
}

// expected builds the same folder with boxo alone.
func expected(t *testing.T, p uio.UnixFSProfile, items []entryOfTar) cid.Cid {
	t.Helper()
	dags := mdtest.Mock()
	open := map[string]uio.Directory{}
	fresh := func() uio.Directory {
		d, err := uio.NewDirectory(dags, uio.WithCidBuilder(p.CidBuilder()), uio.WithSizeEstimationMode(p.HAMTSizeEstimation))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	open[""] = fresh()
	put := func(at string, n ipld.Node) {
		folder, name := path.Split(at)
		if err := open[folder].AddChild(t.Context(), name, n); err != nil {
			t.Fatal(err)
		}
	}
	var folders []string
	for _, i := range items {
		switch {
		case strings.HasSuffix(i.path, "/"):
			open[i.path] = fresh()
			folders = append(folders, i.path)
		case i.target != "":
			data, err := unixfs.SymlinkData(i.target)
			if err != nil {
				t.Fatal(err)
			}
			n := merkledag.NodeWithData(data)
			if err := n.SetCidBuilder(p.CidBuilder()); err != nil {
				t.Fatal(err)
			}
			put(i.path, n)
		default:
			params := helpers.DagBuilderParams{Maxlinks: p.FileDAGWidth, RawLeaves: p.RawLeaves, CidBuilder: p.CidBuilder(), Dagserv: dags}
			b, err := params.New(chunk.NewSizeSplitter(strings.NewReader(i.content), p.ChunkSize))
			if err != nil {
				t.Fatal(err)
			}
			n, err := balanced.Layout(b)
			if err != nil {
				t.Fatal(err)
			}
			put(i.path, n)
		}
	}
	slices.Reverse(folders)
	for _, at := range append(folders, "") {
		n, err := open[at].GetNode()
		if err != nil {
			t.Fatal(err)
		}
		if at == "" {
			return n.Cid()
		}
		put(strings.TrimSuffix(at, "/"), n)
	}
	panic("no root")
}

// profiles are the layouts with boxo's description of each.
func profiles(t *testing.T) map[string]struct {
	layout Layout
	boxo   uio.UnixFSProfile
} {
	usual := uio.UnixFS_v1_2025
	usual.MhType = mh.BLAKE3
	raw := uio.UnixFS_v0_2015
	raw.CIDVersion, raw.RawLeaves = 1, true
	return map[string]struct {
		layout Layout
		boxo   uio.UnixFSProfile
	}{
		"usual":      {layoutOf(t, "", ""), usual},
		"blake3":     {layoutOf(t, BLAKE3, "1"), usual},
		"sha2-256":   {layoutOf(t, SHA2256, "1"), raw},
		"version 0":  {layoutOf(t, "", "0"), uio.UnixFS_v0_2015},
		"both named": {layoutOf(t, SHA2256, "0"), uio.UnixFS_v0_2015},
	}
}

// Folders of every layout have the CIDs that boxo gives them, also around the size from which on they are sharded.
func TestFoldersAreThoseOfBoxo(t *testing.T) {
	for name, p := range profiles(t) {
		t.Run(name, func(t *testing.T) {
			_, tree := importItems(t, p.layout, odd())
			if want := expected(t, p.boxo, odd()); !tree.Root.Equals(want) {
				t.Errorf("root %s, want %s", tree.Root, want)
			}
			_, whole := importItems(t, p.layout, many("", 2_000))
			n := sort.Search(len(whole.Entries), func(n int) bool { return p.layout.folderSize(whole.Entries[:n]) > maxFolderBlock })
			for sharded, n := range map[bool]int{false: n - 1, true: n} {
				s, tree := importItems(t, p.layout, many("", n))
				if want := expected(t, p.boxo, many("", n)); !tree.Root.Equals(want) {
					t.Errorf("%d files: root %s, want %s", n, tree.Root, want)
				}
				root, err := loadUnixFS(t.Context(), s, tree.Root)
				if err != nil || root.digits() > 0 != sharded {
					t.Errorf("%d files: sharded %t, want %t, %v", n, !sharded, sharded, err)
				}
			}
		})
	}
}

// Folders have the CIDs that are published for them.
func TestFoldersHaveKnownCIDs(t *testing.T) {
	for _, tc := range []struct {
		hash, version string
		items         []entryOfTar
		root          string
	}{
		{SHA2256, "0", nil, "QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn"},
		{SHA2256, "1", nil, "bafybeiczsscdsbs7ffqz55asqdf3smv6klcw3gofszvwlyarci47bgf354"},
	} {
		if _, tree := importItems(t, layoutOf(t, tc.hash, tc.version), tc.items); tree.Root.String() != tc.root {
			t.Errorf("%s, version %s: %s, want %s", tc.hash, tc.version, tree.Root, tc.root)
		}
	}
	for _, wrong := range [][2]string{{BLAKE3, "0"}, {"md5", "1"}, {"md5", "0"}, {SHA2256, "2"}, {"", "-1"}} {
		if _, err := LayoutOf(wrong[0], wrong[1]); !errors.Is(err, ErrLayout) {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}

// itemsOf reads a tar stream.
func itemsOf(t *testing.T, r io.Reader) (items []entryOfTar) {
	t.Helper()
	archive := tar.NewReader(r)
	for {
		h, err := archive.Next()
		if err == io.EOF { //nolint:errorlint // the end of the archive
			return items
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, entryOfTar{h.Name, string(content), h.Linkname})
	}
}

// A folder that was imported is read back as it was, with every layout, and each path in it leads to its CID.
func TestFoldersAreReadBack(t *testing.T) {
	byPath := func(a, b entryOfTar) int { return strings.Compare(a.path, b.path) }
	want := slices.SortedFunc(slices.Values(odd()), byPath)
	for name, p := range profiles(t) {
		t.Run(name, func(t *testing.T) {
			s, tree := importItems(t, p.layout, odd())
			f, err := new(Buffers).OpenFolder(t.Context(), s, tree.Root)
			if err != nil {
				t.Fatal(err)
			}
			out := new(bytes.Buffer)
			if err := f.WriteTar(t.Context(), out); err != nil {
				t.Fatal(err)
			}
			got := itemsOf(t, out)
			if again, err := ImportTar(t.Context(), p.layout, tarOf(t, got), func([]blocks.Block) error { return nil }); err != nil || !again.Root.Equals(tree.Root) {
				t.Errorf("what was read has the root %s, %v", again.Root, err)
			}
			if slices.SortFunc(got, byPath); !slices.Equal(got, want) {
				t.Errorf("%d entries, want %d", len(got), len(want))
			}
			for _, i := range want {
				c, err := Resolve(t.Context(), s, tree.Root, strings.Split(strings.TrimSuffix(i.path, "/"), "/"))
				if err != nil {
					t.Fatalf("%q: %v", i.path, err)
				}
				file, err := Open(t.Context(), s, c)
				switch {
				case strings.HasSuffix(i.path, "/"):
					if !errors.Is(err, ErrIsDirectory) {
						t.Errorf("%q: %v", i.path, err)
					}
					continue
				case i.target != "":
					if !errors.Is(err, ErrNotFile) {
						t.Errorf("%q: %v", i.path, err)
					}
					continue
				case err != nil:
					t.Fatal(err)
				}
				if data, err := io.ReadAll(file); err != nil || string(data) != i.content {
					t.Errorf("%q: %d bytes, %v", i.path, len(data), err)
				}
				_ = file.Close()
			}
			for _, none := range [][]string{{"none"}, {"z", "x"}, {"link", "big"}, {"sharded", "none"}, {"sharded", "1"}, {"", "a"}, {"a", ""}} {
				if _, err := Resolve(t.Context(), s, tree.Root, none); !errors.Is(err, ErrNoEntry) {
					t.Errorf("%q: %v", none, err)
				}
			}
		})
	}
}

// A stream that is no folder is refused with the reason, and a stream that was cut with its error.
func TestStreamsThatAreNoFoldersAreRefused(t *testing.T) {
	deep := strings.Repeat("d/", MaxFolderDepth)
	for name, tc := range map[string]struct {
		items []entryOfTar
		want  error
	}{
		"parent":          {[]entryOfTar{{path: "../x"}}, ErrInvalidTar},
		"parent inside":   {[]entryOfTar{{path: "a/"}, {path: "a/../x"}}, ErrInvalidTar},
		"absolute":        {[]entryOfTar{{path: "/etc/passwd"}}, ErrInvalidTar},
		"empty name":      {[]entryOfTar{{path: "a/"}, {path: "a//x"}}, ErrInvalidTar},
		"no folder":       {[]entryOfTar{{path: "a/x"}}, ErrInvalidTar},
		"closed folder":   {[]entryOfTar{{path: "a/"}, {path: "b/"}, {path: "a/x"}}, ErrInvalidTar},
		"two of one name": {[]entryOfTar{{path: "a"}, {path: "a"}}, ErrInvalidTar},
		"two folders":     {[]entryOfTar{{path: "a/"}, {path: "b/"}, {path: "a/"}}, ErrInvalidTar},
		"late root":       {[]entryOfTar{{path: "a"}, {path: "./"}}, ErrInvalidTar},
		"too deep":        {[]entryOfTar{{path: deep + "x"}}, ErrTooLarge},
	} {
		_, err := ImportTar(t.Context(), Usual, tarOf(t, tc.items), func([]blocks.Block) error { return nil })
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
	whole := tarOf(t, []entryOfTar{{path: "a", content: strings.Repeat("x", 2_000)}, {path: "b"}}).Bytes()
	broken := errors.New("broken")
	for _, at := range []int{0, 512, 1024, 2560, 3072, len(whole) - 1, len(whole)} {
		_, err := ImportTar(t.Context(), Usual, io.MultiReader(bytes.NewReader(whole[:at]), failing{broken}), func([]blocks.Block) error { return nil })
		if !errors.Is(err, broken) {
			t.Errorf("cut at %d: %v", at, err)
		}
	}
	full := errors.New("disk full")
	if _, err := ImportTar(t.Context(), Usual, bytes.NewReader(whole), func([]blocks.Block) error { return full }); !errors.Is(err, full) {
		t.Errorf("a store that fails: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// A folder whose names cannot be those of files, or that never ends, is refused when it is read. None of its files is
// written below another name.
func TestHostileFoldersAreRefused(t *testing.T) {
	s := lent{peertest.NewStore()}
	put := func(n *merkledag.ProtoNode) *merkledag.ProtoNode {
		t.Helper()
		if err := n.SetCidBuilder(builder); err != nil {
			t.Fatal(err)
		}
		if err := s.PutMany(t.Context(), []blocks.Block{n}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	folder := func(names []string, child *merkledag.ProtoNode) *merkledag.ProtoNode {
		n := unixfs.EmptyDirNode()
		for _, name := range names {
			if err := n.AddRawLink(name, &ipld.Link{Cid: child.Cid()}); err != nil {
				t.Fatal(err)
			}
		}
		return put(n)
	}
	file := put(merkledag.NodeWithData(unixfs.FilePBData([]byte("x"), 1)))
	deep := folder([]string{"x"}, file)
	for range MaxFolderDepth {
		deep = folder([]string{"d"}, deep)
	}
	for name, tc := range map[string]struct {
		root *merkledag.ProtoNode
		want error
	}{
		"parent":    {folder([]string{".."}, file), ErrInvalidBlock},
		"self":      {folder([]string{"."}, file), ErrInvalidBlock},
		"slash":     {folder([]string{"a/b"}, file), ErrInvalidBlock},
		"absolute":  {folder([]string{"/etc"}, file), ErrInvalidBlock},
		"empty":     {folder([]string{""}, file), ErrInvalidBlock},
		"NUL":       {folder([]string{"a\x00"}, file), ErrInvalidBlock},
		"deep":      {deep, ErrTooLarge},
		"metadata":  {folder([]string{"x"}, put(merkledag.NodeWithData([]byte{8, 3}))), ErrNotFile},
		"no UnixFS": {folder([]string{"x"}, put(merkledag.NodeWithData([]byte("text")))), ErrNotFile},
		"missing":   {folder([]string{"x"}, merkledag.NodeWithData([]byte("not stored"))), nil},
	} {
		f, err := new(Buffers).OpenFolder(t.Context(), s, tc.root.Cid())
		if err != nil {
			t.Fatal(err)
		}
		out := new(bytes.Buffer)
		err = f.WriteTar(t.Context(), out)
		if tc.want != nil && !errors.Is(err, tc.want) || tc.want == nil && !ipld.IsNotFound(err) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
		if name != "deep" && out.Len() > 0 {
			t.Errorf("%s: %d bytes were written", name, out.Len())
		}
	}
	if _, err := new(Buffers).OpenFolder(t.Context(), s, file.Cid()); !errors.Is(err, ErrNotFile) {
		t.Errorf("a file as a folder: %v", err)
	}
}

// Reading a folder of any bytes ends, with a complete tar stream or an error, and the entries have valid names.
func FuzzFolder(f *testing.F) {
	s := lent{peertest.NewStore()}
	leaf, err := Leaf([]byte("content"))
	if err != nil {
		f.Fatal(err)
	}
	folder, shard := unixfs.EmptyDirNode(), new(merkledag.ProtoNode)
	data, err := unixfs.HAMTShardData([]byte{1}, shardFanout, hashTypeUsual)
	if err != nil {
		f.Fatal(err)
	}
	shard.SetData(data)
	err = errors.Join(folder.AddRawLink("x", &ipld.Link{Cid: leaf.Cid()}), shard.AddRawLink("00x", &ipld.Link{Cid: leaf.Cid()}), s.PutMany(f.Context(), []blocks.Block{leaf}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(folder.RawData())
	f.Add(shard.RawData())
	f.Add(unixfs.EmptyDirNode().RawData())
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := builder.Sum(data)
		if err != nil {
			t.Fatal(err)
		}
		root, err := blocks.NewBlockWithCid(data, c)
		if err != nil {
			t.Fatal(err)
		}
		s := lent{peertest.NewStore()}
		if err := s.PutMany(t.Context(), []blocks.Block{leaf, root}); err != nil {
			t.Fatal(err)
		}
		_, _ = Resolve(t.Context(), s, c, []string{"x", "y"})
		folder, err := new(Buffers).OpenFolder(t.Context(), s, c)
		if err != nil {
			return
		}
		out := new(bytes.Buffer)
		if err := folder.WriteTar(t.Context(), out); err != nil {
			return
		}
		for _, i := range itemsOf(t, out) {
			if parts, err := partsOf(i.path, ErrInvalidTar); err != nil || len(parts) != 1 {
				t.Errorf("an entry %q", i.path)
			}
		}
	})
}
