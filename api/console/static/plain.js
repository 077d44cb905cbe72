// Reads links to content that is not encrypted: docs/encryption.md, Links. The link has the token of a
// share, and the server decides what the token opens.
import { Refusal } from './seal.js'

const maxNames = 100000 // of a folder
const piece = 1 << 20 // bytes that are handed on at once

// endOf returns the end of a token in seconds, undefined if there is none. The page shows the end and
// checks nothing by it.
function endOf(token) {
  try {
    return JSON.parse(atob(token.split('.')[1].replaceAll('-', '+').replaceAll('_', '/'))).exp
  } catch {
    throw new Refusal('link')
  }
}

// openLink opens the parameters of a link of version 2. Paths begin with / before the key; the path of a
// folder has no / at its end.
export function openLink(values) {
  const [bucket, place, access] = ['b', 'p', 'a'].map((name) => values.get(name))
  if (!bucket || !place || !access) throw new Refusal('link')
  const isFolder = place.endsWith('/')
  return { bucket, access, isFolder, expires: endOf(access), scope: `/${isFolder ? place.slice(0, -1) : place}`, storageKey: place }
}

// listFolder returns the entries of a folder. ask sends a query for a page of its names.
export async function listFolder(path, ask) {
  const prefix = `${path}/`.slice(1)
  const entries = []
  let cursor = ''
  do {
    const answer = await ask(new URLSearchParams({ prefix, delimiter: '/', limit: 1000, ...cursor && { cursor } }))
    const page = await answer.json()
    for (const folder of page.prefixes) entries.push({ name: folder.slice(prefix.length, -1), path: `/${folder.slice(0, -1)}`, isFolder: true })
    for (const o of page.results) {
      if (o.key === prefix) continue // the folder itself
      entries.push({ name: o.key.slice(prefix.length), path: `/${o.key}`, storageKey: o.key, size: o.size, modified: Date.parse(o.created) / 1000 })
    }
    if (entries.length > maxNames) throw new Refusal('many')
    cursor = page.next
  } while (cursor)
  return entries
}

// openObject returns the size of an object by the headers of its content.
export function openObject(headers) {
  if (headers.get('x-amz-meta-encrypted') === 'true' || headers.get('x-amz-meta-x-fula-encrypted') === 'true') throw new Refusal('encrypted')
  return { size: Number(headers.get('content-length')) }
}

// pieces yields the content of an object as far as take has it, and refuses content of another size.
export async function* pieces({ size }, take) {
  for (let at = 0; at < size;) {
    const bytes = await take(Math.min(piece, size - at))
    if (!bytes.length) throw new Refusal('truncated')
    at += bytes.length
    yield bytes
  }
}
