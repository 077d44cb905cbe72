// Reads the format of docs/encryption.md: links, share tokens, indexes of names and encrypted
// objects. What comes in may be of an attacker: each refusal is a Refusal of its own kind.
import { Blake3, derive } from './blake3.js'
import { importX25519, join, openKey } from './hpke.js'

const { subtle } = globalThis.crypto

// Bounds. The formats have the first ones; the others keep a page usable.
const maxToken = 16 << 10 // bytes of the JSON of a token
const maxHeader = (16 << 10) - 64
const maxNode = 2 << 20 // bytes of an object of an index
const maxDepth = 64
const maxChunk = 16 << 20
const maxWhole = 64 << 20 // bytes of content in one piece, which is in memory until it is checked
const maxPath = 1024
const maxNames = 100000 // of a folder
const readers = 8 // concurrent requests for an index
const skew = 60 // seconds

const chunkOverhead = 28
const tag = 16

export class Refusal extends Error {
  constructor(kind, detail = '') {
    super(`${kind} ${detail}`)
    this.kind = kind
    this.detail = detail
  }
}

const text = (s) => new TextEncoder().encode(s)
const hex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('')
const base64 = (bytes) => btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(''))
const base64url = (bytes) => base64(bytes).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')

// bytesOf decodes base64 in its one form; size 0 is any.
function bytesOf(s, size = 0, form = base64) {
  if (typeof s !== 'string') throw new Error('not base64')
  const bytes = Uint8Array.from(atob(s.replaceAll('-', '+').replaceAll('_', '/')), (c) => c.charCodeAt(0))
  if (form(bytes) !== s || size && bytes.length !== size) throw new Error('not base64')
  return bytes
}

// parse returns the JSON object in s. A member that occurs twice makes it malformed, and JSON.parse
// would take the last.
function parse(s) {
  const object = JSON.parse(s)
  if (object === null || typeof object !== 'object' || Array.isArray(object)) throw new Error('not an object')
  const open = [] // names of the objects around, null for a list
  for (const [token, colon] of s.matchAll(/"(?:[^"\\]|\\.)*"(\s*:)?|[{}[\]]/g)) {
    if (token === '{') open.push(new Set())
    else if (token === '[') open.push(null)
    else if (token === '}' || token === ']') open.pop()
    else if (colon) {
      const name = JSON.parse(token.slice(0, -colon.length))
      if (open.at(-1).has(name)) throw new Error('a member occurs twice')
      open.at(-1).add(name)
    }
  }
  return object
}

const parseBytes = (bytes) => parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes))

function must(ok) {
  if (!ok) throw new Error('malformed')
}

// as runs f and turns what it throws into a refusal of a kind, unless it is one.
function as(kind, f) {
  const refuse = (err) => { throw err instanceof Refusal ? err : new Refusal(kind, err.message) }
  try {
    const result = f()
    return result instanceof Promise ? result.catch(refuse) : result
  } catch (err) {
    return refuse(err)
  }
}

// canonical is RFC 8785: JavaScript writes strings and numbers in that form.
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`
  if (value === null || typeof value !== 'object') return JSON.stringify(value)
  return `{${Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join()}}`
}

const aesKey = (key) => subtle.importKey('raw', key, 'AES-GCM', false, ['decrypt'])

async function open(key, nonce, sealed, aad = '') {
  return new Uint8Array(await subtle.decrypt({ name: 'AES-GCM', iv: nonce, additionalData: text(aad) }, key, sealed))
}

// Paths

// cleanPath returns a path without dot segments and empty segments. It refuses what leaves the root,
// and what a server may decode to another path.
export function cleanPath(path) {
  const refuse = () => { throw new Refusal('escape', path.slice(0, 64)) }
  if (!path.startsWith('/') || text(path).length > maxPath || /[\0\\]|%(2e|2f|5c|25|00)/i.test(path) || !path.isWellFormed()) refuse()
  const segments = []
  for (const segment of path.split('/')) {
    if (segment === '..' && segments.pop() === undefined) refuse()
    if (!['', '.', '..'].includes(segment)) segments.push(segment)
  }
  return '/' + segments.join('/')
}

export const childOf = (folder, name) => (folder === '/' ? '' : folder) + '/' + name

// Links and tokens

// openLink opens the fragment of a link at a time in seconds. The result tells what is shared. The
// refusal of a share for one person has its owner as detail.
export async function openLink(fragment, now) {
  const values = new URLSearchParams(fragment)
  if (values.get('v') !== '1') throw new Refusal(values.has('v') ? 'version' : 'link')
  if (!values.has('t')) throw new Refusal('link')
  const token = await verifyToken(values.get('t'), now)
  if (!values.has('k')) throw new Refusal('identity', token.owner)
  const secret = as('link', () => bytesOf(values.get('k'), 32, base64url))
  if (secret.every((b) => b === 0)) throw new Refusal('link')
  const share = await openToken(token, secret)
  return { ...share, access: values.get('a') ?? '' }
}

function parseToken(encoded) {
  must(encoded.length <= 2 * maxToken)
  const bytes = encoded.startsWith('{') ? text(encoded) : bytesOf(encoded, 0, base64url)
  must(bytes.length <= maxToken)
  const t = JSON.parse(canonical(parseBytes(bytes)))
  must(/^[0-9a-f]{32}$/i.test(t.share_id) && typeof t.path_scope === 'string' && Number.isSafeInteger(t.created_at))
  must(t.expires_at == null || Number.isSafeInteger(t.expires_at))
  for (const name of ['bucket', 'storage_key', 'prefix']) must(t[name] === undefined || typeof t[name] === 'string')
  must(t.key_kind === undefined || t.key_kind === 'folder')
  must(typeof (t.permissions.read ?? t.permissions.can_read) === 'boolean')
  return t
}

// verifyToken checks a token without the key of its recipient.
async function verifyToken(encoded, now) {
  const t = as('link', () => parseToken(encoded))
  const { owner, signer, wrapped } = as('link', () => ({
    owner: bytesOf(t.owner_public_key, 32), signer: bytesOf(t.signer_public_key, 32), wrapped: wrappedKey(t.encrypted_dek)
  }))
  const { signature, ...signed } = t
  const { encrypted_dek: _, ...bound } = signed
  const key = await as('link', () => subtle.importKey('raw', signer, 'Ed25519', false, ['verify']).catch(unsupported))
  const valid = await as('link', () => subtle.verify('Ed25519', key, bytesOf(signature, 64), text(canonical(signed))))
  if (!valid) throw new Refusal('signature')
  if (t.created_at > now + skew) throw new Refusal('notYet', t.created_at)
  if (t.expires_at != null && now >= t.expires_at + skew) throw new Refusal('expired', t.expires_at)
  const keys = join(owner, signer)
  const sum = new Uint8Array(await subtle.digest('SHA-256', keys)).subarray(0, 4)
  return { t, wrapped, bound, owner: 'hfid1-' + base64url(join(keys, sum)) }
}

async function openToken({ t, wrapped, bound, owner }, secret) {
  const recipient = await as('link', () => importX25519(secret).catch(unsupported))
  const opened = await as('recipient', () => openKey(recipient, wrapped.encapsulated, wrapped.ciphertext, text('fula-storage-v2'), text(canonical(bound))))
  const scope = cleanPath(t.path_scope.startsWith('/') ? t.path_scope : '/' + t.path_scope)
  if (!(t.permissions.read ?? t.permissions.can_read)) throw new Refusal('permission')
  return {
    key: opened, scope, isFolder: t.key_kind === 'folder', bucket: t.bucket ?? '', storageKey: t.storage_key ?? '', prefix: t.prefix ?? '',
    owner, created: t.created_at, expires: t.expires_at ?? 0
  }
}

// unsupported tells apart a browser that lacks an algorithm from a key that is malformed.
function unsupported(err) {
  throw err.name === 'NotSupportedError' ? new Refusal('browser') : err
}

function wrappedKey(w) {
  let encapsulated = w.encapsulated_key
  if (typeof encapsulated === 'object') {
    if (w.version !== 2 || w.cipher.toLowerCase().replace(/[-_]/g, '') !== 'chacha20poly1305') throw new Refusal('version')
    encapsulated = encapsulated.ephemeral_public
  }
  return { encapsulated: bytesOf(encapsulated, 32), ciphertext: bytesOf(w.ciphertext, 48) }
}

// folderKey returns the key of a folder, which is share.scope or below.
function folderKey(share, path) {
  const below = share.scope === '/' ? path.slice(1) : path.slice(share.scope.length + 1)
  return below.split('/').filter(Boolean).reduce((key, segment) => derive('holdfast folder-child v1', key, text(segment)), share.key)
}

// Index of names

// listFolder returns the entries of a folder, subfolders first. read(key, most) resolves to the bytes
// of an object, or to null if there is none. An entry with a name that no file of the folder can have
// has invalid set.
export async function listFolder(share, path, read) {
  const folder = folderKey(share, path)
  const base = `${share.prefix}x/${hex(derive('holdfast index-name v1', folder).subarray(0, 16))}/`
  const key = await aesKey(derive('holdfast index-key v1', folder))
  const entries = []
  const splits = new Set()
  let level = ['root']
  for (let depth = 0; level.length; depth++) {
    if (depth > maxDepth) throw new Refusal('index')
    const next = []
    const queue = level.values()
    await Promise.all(Array.from({ length: readers }, async () => {
      for (const id of queue) {
        const sealed = await read(base + id, maxNode)
        if (sealed === null) {
          if (id === 'root') continue
          throw new Refusal('indexMissing')
        }
        const node = await as('index', () => openNode(key, sealed, `holdfast:index:v1:${share.bucket}:${id}:${path}`))
        if (node.split) {
          if (splits.has(node.split)) throw new Refusal('index') // the tree would lead in circles
          splits.add(node.split)
          for (const digit of '0123456789abcdef') next.push(`${node.split}-${digit}`)
        }
        for (const e of node.entries ?? []) entries.push(as('index', () => entryOf(path, e)))
        if (entries.length > maxNames || next.length > maxNames) throw new Refusal('names')
      }
    }))
    level = next
  }
  const order = new Intl.Collator('en', { numeric: true })
  return entries.sort((a, b) => b.isFolder - a.isFolder || order.compare(a.name, b.name))
}

async function openNode(key, sealed, aad) {
  must(new TextDecoder().decode(sealed.subarray(0, 8)) === 'hfindex1')
  const node = parseBytes(await open(key, sealed.subarray(8, 20), sealed.subarray(20), aad))
  if (node.version !== 1) throw new Refusal('version')
  must(node.entries === undefined || Array.isArray(node.entries))
  must(!node.split || /^[0-9a-f]{32}$/.test(node.split) && !node.entries?.length)
  const names = (node.entries ?? []).map((e) => text(e.name))
  for (let i = 1; i < names.length; i++) must(isBefore(names[i - 1], names[i]))
  return node
}

// isBefore compares bytes. The names of a node are in this order, and none is there twice.
function isBefore(a, b) {
  const i = a.findIndex((byte, i) => byte !== b[i])
  return i < 0 ? a.length < b.length : a[i] < b[i]
}

function entryOf(folder, e) {
  must(typeof e.name === 'string' && Number.isSafeInteger(e.size) && e.size >= 0 && (e.modified_at === undefined || Number.isSafeInteger(e.modified_at)))
  const isFolder = e.name.endsWith('/')
  const name = isFolder ? e.name.slice(0, -1) : e.name
  const path = childOf(folder, name)
  let invalid = name.includes('/') || !isFolder && !isStorageKey(e.key)
  try {
    invalid ||= cleanPath(path) !== path || path === folder
  } catch {
    invalid = true
  }
  return { name, path, isFolder, invalid, storageKey: e.key, size: e.size, modified: e.modified_at }
}

// isStorageKey returns whether a key is the path of a request as it is: a browser resolves dot segments.
export const isStorageKey = (key) => typeof key === 'string' && key !== '' && !key.split('/').some((s) => s === '.' || s === '..')

// Objects

// openObject opens the headers of an object that the server has under a storage key. The private
// metadata must name the path.
export async function openObject(share, path, storageKey, headers) {
  const header = headerOf(headers)
  const h = as('header', () => parseHeader(header))
  let key = share.key
  if (share.isFolder) {
    if (!h.folder_key) throw new Refusal('noFolderKey')
    const above = path.slice(0, path.lastIndexOf('/')) || '/'
    const wrapping = await aesKey(folderKey(share, above))
    const { nonce, ciphertext } = as('header', () => ({ nonce: bytesOf(h.folder_key.nonce, 12), ciphertext: bytesOf(h.folder_key.ciphertext, 48) }))
    key = await as('metadata', () => open(wrapping, nonce, ciphertext, 'holdfast:v1:folder-wrap:' + storageKey))
  }
  const data = await aesKey(key)
  const m = await as('metadata', () => openMetadata(data, h))
  if (m.original_key !== path) throw new Refusal('wrongObject')
  const count = m.chunk_size === undefined ? 1 : Math.ceil(m.actual_size / m.chunk_size)
  if (m.chunk_size === undefined && m.actual_size > maxWhole) throw new Refusal('whole')
  const sealed = m.actual_size + (m.chunk_size === undefined ? tag : chunkOverhead * count)
  return { key: data, h, storageKey, count, sealed, size: m.actual_size, chunk: m.chunk_size, hash: m.content_hash.toLowerCase(), modified: m.modified_at }
}

function headerOf(headers) {
  for (const prefix of ['x-amz-meta-', 'x-amz-meta-x-fula-']) {
    if (headers.get(prefix + 'encrypted') !== 'true') continue
    const header = headers.get(prefix + 'encryption')
    if (!header || header.length > maxHeader) throw new Refusal('header')
    return header
  }
  throw new Refusal('notEncrypted')
}

function parseHeader(header) {
  const h = parse(header)
  must(Number.isSafeInteger(h.version))
  if (![2, 4, 102, 104].includes(h.version) || h.algorithm !== 'AES-256-GCM') throw new Refusal('version', h.version)
  bytesOf(h.nonce, 12)
  if (h.metadata_privacy !== true) throw new Refusal('noMetadata')
  return h
}

async function openMetadata(key, h) {
  const p = parse(h.private_metadata)
  if (p.version !== 1) throw new Refusal('version', p.version)
  const m = parseBytes(await open(key, bytesOf(p.nonce, 12), bytesOf(p.ciphertext)))
  must(typeof m.original_key === 'string' && Number.isSafeInteger(m.modified_at) && /^[0-9a-f]{64}$/i.test(m.content_hash))
  must(Number.isSafeInteger(m.actual_size) && m.actual_size >= 0)
  if (m.chunk_size !== undefined || m.chunk_count !== undefined) {
    must(Number.isSafeInteger(m.chunk_size) && m.chunk_size >= 1 && m.chunk_size <= maxChunk)
    must(m.chunk_count === Math.ceil(m.actual_size / m.chunk_size))
    must(h.version % 100 === 4 && bytesOf(h.nonce, 12).every((b) => b === 0))
  }
  return m
}

// decrypt yields the content of an object of openObject, in pieces that are authentic. take(n)
// resolves to the next n bytes of the ciphertext, or to fewer at its end. The content as a whole is
// right only after the last piece: what was yielded before must not be handed on until then.
export async function * decrypt(o, take) {
  const sum = new Blake3()
  for (let i = 0; i < o.count; i++) {
    const plain = await (o.chunk === undefined ? openWhole(o, take) : openChunk(o, take, i))
    sum.update(plain)
    yield plain
  }
  if ((await take(1)).length) throw new Refusal('trailing')
  if (hex(sum.digest()) !== o.hash) throw new Refusal('hash')
}

async function openWhole(o, take) {
  const sealed = await take(o.sealed)
  if (sealed.length < o.sealed) throw new Refusal('truncated')
  return as('content', () => open(o.key, bytesOf(o.h.nonce, 12), sealed, o.h.version % 100 === 4 ? 'fula:v4:content:' + o.storageKey : ''))
}

async function openChunk(o, take, i) {
  const size = Math.min(o.chunk, o.size - i * o.chunk) + chunkOverhead
  const sealed = await take(size)
  if (sealed.length < size) throw new Refusal('truncated')
  return as('content', () => open(o.key, sealed.subarray(0, 12), sealed.subarray(12), `fula:v4:chunk:${o.storageKey}:${i}`))
}
