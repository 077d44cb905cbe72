// The page of share links: it opens the link in its own fragment, lists what is shared, and decrypts
// files. For encrypted files, no name, path or key is in a request: the node sees storage keys and the
// access token. A link of version 2 is to files that are not encrypted.
import { bytesText, nounText, percentText, timeElement, utcText } from './format.js'
import { decrypt, isStorageKey, listFolder, openLink, openObject, Refusal } from './seal.js'

const page = document.querySelector('.shared')
const part = (name) => page.querySelector(`[data-${name}]`)
const memory = () => Number(page.dataset.memory) // largest file in bytes that is decrypted in memory
const rowsAtOnce = 500
const retries = 3 // of a download that breaks off, without a byte in between
const maxText = 1 << 20 // bytes of a text that is shown, because a page with more becomes slow
const maxShown = 32 << 20 // bytes of other files that are shown

const pictures = { avif: 'avif', bmp: 'bmp', gif: 'gif', jpeg: 'jpeg', jpg: 'jpeg', png: 'png', webp: 'webp' }
const texts = ['conf', 'css', 'csv', 'go', 'html', 'ini', 'js', 'json', 'log', 'md', 'py', 'rs', 'sh', 'sql', 'svg', 'toml', 'tsv', 'txt', 'xml', 'yaml', 'yml']

const command = () => share?.plain ? 'Ask the owner for a download link instead.' : 'Open the link with the command holdfast share open instead.'
const damaged = (why) => `The file is damaged: ${why}. Nothing was saved. Ask the owner to store it again.`
const sentences = {
  link: () => 'This link is damaged. Copy the whole link, also the part behind the # sign, and open it again.',
  signature: () => 'This link was changed on its way: its signature does not match. Ask the owner to send it again.',
  recipient: () => 'The key in this link does not belong to the share. Ask the owner to send the link again.',
  version: () => 'This page does not know the version of this share. It was made by a newer program: ask the operator to update this node, or open the link with a newer release of holdfast share open.',
  identity: () => 'This share is for one person, and this page has no key for it. If it is for you, open it with the command below. Compare the share identity after --from with the one that the owner told you.',
  notYet: (seconds) => `This share is not valid before ${utcText(seconds)}. Check the clock of this device.`,
  expired: (seconds) => `This share has expired on ${utcText(seconds)}. Ask the owner for a new link.`,
  permission: () => 'This share does not permit reading.',
  escape: () => 'The path of this share is not valid. Ask the owner for a new link.',
  access: () => `This link has no access to the stored files. Somebody with an own key for them opens it with the command:`,
  place: () => `This link does not say where the shared files are. ${command()}`,
  revoked: () => 'The owner has revoked this share, or its access has ended. Ask the owner for a new link.',
  index: () => 'The list of names is damaged: it was changed after its owner wrote it.',
  indexMissing: () => 'A part of the list of names is missing.',
  names: () => `This folder has more names than a browser can list. ${command()}`,
  notEncrypted: () => damaged('the node has it without encryption'),
  header: () => damaged('its encryption header is not valid'),
  noFolderKey: () => 'The owner has not encrypted this file for the readers of the folder.',
  noMetadata: () => `The file has no private metadata, so its name cannot be checked. ${command()}`,
  metadata: () => damaged('its metadata was changed, or it is of another folder'),
  wrongObject: () => 'The node answered with another file. Nothing was saved.',
  content: () => damaged('its content was changed'),
  truncated: () => damaged('its end is missing'),
  trailing: () => damaged('it has more data behind its end'),
  hash: () => damaged('its content has another hash'),
  whole: () => `The file is encrypted in one piece that is too large for a browser. ${command()}`,
  large: () => `This browser can save files of at most ${bytesText(memory())}. ${command()}`,
  shown: () => 'The browser cannot show this file. Download it instead.',
  many: () => 'This folder has more names than a browser can list. Ask the owner for a link to one of its folders.',
  encrypted: () => 'This file is encrypted, and the link has no key for it. Ask the owner for a link that holdfast share create makes.',
  missing: () => 'The file is not there any more.',
  changed: () => 'The file was replaced while it was read. Try again.',
  busy: () => 'The cluster is busy or has no majority. Try again in a moment.',
  network: () => 'The node cannot be reached. Check the connection and try again.',
  server: () => 'The node answered with an error. Try again in a moment.',
  browser: () => `This browser is too old: it lacks X25519 or Ed25519. Update it. ${command()}`,
  secure: () => `A browser decrypts only on a page with https. ${command()}`,
}

function sentence(err) {
  return (sentences[err.kind] ?? (() => `Something went wrong: ${err.message}`))(err.detail)
}

// shownName returns a name without characters that would hide what it is.
const shownName = (name) => name.replace(/[\p{Cc}\p{Bidi_Control}]/gu, '_')

function element(tag, properties, ...children) {
  const e = Object.assign(document.createElement(tag), properties)
  e.append(...children)
  return e
}

// Requests

let share = null // what openLink returned

// request reads an object. The slashes of a plain key are encoded, because a key may have dot segments.
function request(of, method, key, signal, headers = {}) {
  return send(of, method, [of.bucket, ...of.plain ? [key] : key.split('/')].map(encodeURIComponent).join('/'), signal, headers)
}

async function send(of, method, path, signal, headers = {}) {
  let answer
  try {
    answer = await fetch(`/api/v1/shared/${path}`, {
      method, signal, headers: { Authorization: `Bearer ${of.access}`, ...headers }, cache: 'no-store', credentials: 'omit', redirect: 'error'
    })
  } catch (err) {
    throw signal.aborted ? err : new Refusal('network')
  }
  if (answer.ok) return answer
  throw new Refusal({ 401: 'revoked', 403: 'revoked', 404: 'missing', 412: 'changed', 429: 'busy', 503: 'busy' }[answer.status] ?? 'server')
}

// within runs f with a signal that ends with f and with a signal around, so that no request outlives f.
async function within(signal, f) {
  const work = new AbortController()
  const end = () => work.abort()
  signal.addEventListener('abort', end)
  try {
    signal.throwIfAborted()
    return await f(work.signal)
  } finally {
    signal.removeEventListener('abort', end)
    end()
  }
}

// takerOf returns the function that takes the next bytes of the content of an answer. It continues a
// content that breaks off.
function takerOf(of, answer, key, signal) {
  const etag = answer.headers.get('etag')
  let reader = answer.body.getReader()
  let at = 0 // bytes that were received
  let failures = 0
  let rest = new Uint8Array(0)
  async function more() {
    for (;;) {
      try {
        const { value } = await reader.read()
        at += value?.length ?? 0
        failures = 0
        return value
      } catch (err) {
        if (signal.aborted) throw err
        if (++failures > retries) throw new Refusal('network')
      }
      await new Promise((resolve) => setTimeout(resolve, 500 * failures))
      try {
        const again = await request(of, 'GET', key, signal, { Range: `bytes=${at}-`, 'If-Match': etag })
        if (again.status !== 206) throw new Refusal('changed')
        reader = again.body.getReader()
      } catch (err) {
        if (err.kind !== 'network' && err.kind !== 'busy') throw err
      }
    }
  }
  return async (n) => {
    const out = new Uint8Array(n)
    let have = 0
    while (have < n) {
      if (!rest.length) rest = await more() ?? rest
      if (!rest.length) break
      const piece = rest.subarray(0, n - have)
      out.set(piece, have)
      have += piece.length
      rest = rest.subarray(piece.length)
    }
    return out.subarray(0, have)
  }
}

// readNode returns an object of an index, or null if there is none.
const readNode = (of, key, most, around) => within(around, async (signal) => {
  let answer
  try {
    answer = await request(of, 'GET', key, signal)
  } catch (err) {
    if (err.kind === 'missing') return null
    throw err
  }
  const bytes = await takerOf(of, answer, key, signal)(most + 1)
  if (bytes.length > most) throw new Refusal('index')
  return bytes
})

// Files

// read decrypts a file into out, which has write(bytes), close() and abort(). Nothing of the file is
// handed on before close, and close comes after all checks.
async function read(entry, out, signal, report) {
  const of = share
  try {
    await within(signal, async (work) => {
      const answer = await request(of, 'GET', entry.storageKey, work)
      const take = takerOf(of, answer, entry.storageKey, work)
      const object = of.plain ? of.plain.openObject(answer.headers) : await openObject(of, entry.path, entry.storageKey, answer.headers)
      let done = 0
      for await (const plain of of.plain ? of.plain.pieces(object, take) : decrypt(object, take)) {
        await out.write(plain)
        done += plain.length
        report(done, object.size)
      }
    })
    signal.throwIfAborted()
    return await out.close()
  } catch (err) {
    await out.abort().catch(() => {})
    throw err
  }
}

// inMemory collects a file as a Blob of a type. Each piece is a Blob of its own, which a browser may
// keep outside of the memory of the page.
function inMemory(most, type) {
  const parts = []
  let size = 0
  return {
    async write(bytes) {
      size += bytes.length
      if (size > most) throw new Refusal('large')
      parts.push(new Blob([bytes]))
    },
    close: async () => new Blob(parts, { type }),
    abort: async () => { parts.length = 0 }
  }
}

async function save(entry, signal, report) {
  const name = shownName(entry.name)
  if (entry.size > memory()) {
    if (!globalThis.showSaveFilePicker) throw new Refusal('large')
    const file = await globalThis.showSaveFilePicker({ suggestedName: name })
    await read(entry, await file.createWritable(), signal, report)
    return
  }
  const blob = await read(entry, inMemory(memory(), 'application/octet-stream'), signal, report)
  const url = URL.createObjectURL(blob)
  element('a', { href: url, download: name }).click()
  setTimeout(() => URL.revokeObjectURL(url), 60000)
}

const extension = (entry) => entry.name.includes('.') ? entry.name.split('.').at(-1).toLowerCase() : ''

// kindOf returns how a file can be shown. Its name decides, and not the type that the writer gave it.
function kindOf(entry) {
  const end = extension(entry)
  if (texts.includes(end) && entry.size <= maxText) return 'text'
  if (Object.hasOwn(pictures, end) && entry.size <= maxShown) return 'picture'
  if (end === 'pdf' && entry.size <= maxShown) return 'pdf'
  return ''
}

// viewOf returns an element that shows a file. A text is text, and a picture or a PDF file has a type
// that is never markup.
async function viewOf(entry, blob, url) {
  const kind = kindOf(entry)
  if (kind === 'text') return element('pre', { tabIndex: 0 }, await blob.text())
  if (kind === 'pdf') return element('a', { href: url, target: '_blank', className: 'button main' }, 'Open in the PDF viewer of the browser')
  const picture = element('img', { src: url, alt: shownName(entry.name), className: 'preview' })
  await picture.decode().catch(() => { throw new Refusal('shown') })
  return picture
}

const dialog = part('preview')
let looking = new AbortController() // ends with what the dialog shows

async function preview(entry) {
  const { signal } = looking = new AbortController()
  const name = shownName(entry.name)
  const doing = share.plain ? 'Loading…' : 'Decrypting…'
  const state = element('p', { className: 'muted', role: 'status' }, doing)
  part('view').replaceChildren(state)
  dialog.querySelector('#preview-name').textContent = name
  dialog.showModal()
  try {
    const type = { text: 'text/plain', pdf: 'application/pdf' }[kindOf(entry)] ?? `image/${pictures[extension(entry)]}`
    const blob = await read(entry, inMemory(maxShown, type), signal, (done, size) => { state.textContent = `${doing} ${percentText(done, size)}` })
    const url = URL.createObjectURL(blob)
    signal.addEventListener('abort', () => URL.revokeObjectURL(url))
    const shown = await viewOf(entry, blob, url)
    if (signal.aborted) return
    Object.assign(part('take'), { href: url, download: name, hidden: false })
    part('view').replaceChildren(shown)
  } catch (err) {
    if (!signal.aborted) part('view').replaceChildren(element('p', { className: 'problem', role: 'alert' }, sentence(err)))
  }
}

// leave forgets what the dialog shows. The close event would come too late: the dialog may show the
// next file by then.
function leave() {
  looking.abort()
  part('take').hidden = true
  part('view').replaceChildren()
}

dialog.addEventListener('cancel', leave)
part('close').addEventListener('click', () => {
  leave()
  dialog.close()
})

// Page

function say(text) {
  part('state').textContent = text
  part('state').hidden = !text
}

function showUntil(shown) {
  for (const e of page.querySelectorAll('[data-until]')) e.hidden = !shown
}

function tell(err) {
  say('')
  part('note').hidden = true
  part('problem').textContent = sentence(err)
  part('problem').hidden = false
  showUntil(err.kind !== 'revoked') // the time in the link does not count any more
  const wanted = ['identity', 'access'].includes(err.kind)
  part('command').hidden = !wanted
  if (!wanted) return
  const open = `holdfast share open ${err.kind === 'identity' ? `--from ${err.detail} ` : ''}`
  const text = `${open}'${location.href.replaceAll("'", '%27')}'` // a link is no part of the command
  part('command').querySelector('pre').textContent = `${open}'${location.origin}${location.pathname}#…'`
  part('copy').dataset.copy = text // for console.js
}

// actionsOf returns the cell with the buttons of a file.
function actionsOf(entry) {
  const cell = element('td', { className: 'actions' })
  const state = element('span', { role: 'status' })
  const button = element('button', { type: 'button', ariaLabel: `Download ${shownName(entry.name)}` }, 'Download')
  button.addEventListener('click', async () => {
    const work = new AbortController()
    const bar = element('progress', { max: 1, value: 0, ariaLabel: `Download of ${shownName(entry.name)}` })
    const cancel = element('button', { type: 'button' }, 'Cancel')
    cancel.addEventListener('click', () => work.abort())
    state.className = 'muted'
    state.textContent = ''
    button.replaceWith(bar, cancel)
    cancel.focus()
    try {
      await save(entry, work.signal, (done, size) => { bar.value = size ? done / size : 1 })
      state.textContent = share.plain ? 'Saved' : 'Saved and checked'
    } catch (err) {
      const given = work.signal.aborted || err.name === 'AbortError' // or the person chose no file
      state.className = given ? 'muted' : 'failed'
      state.textContent = given ? 'Cancelled' : sentence(err)
    }
    const focused = cancel === document.activeElement
    bar.remove()
    cancel.replaceWith(button)
    if (focused) button.focus()
  })
  cell.append(state, button)
  return cell
}

function rowOf(entry) {
  const name = element('bdi', {}, shownName(entry.name) + (entry.isFolder ? '/' : ''))
  const cell = element('td', {})
  const act = entry.isFolder ? () => enter(entry.path) : kindOf(entry) && (() => preview(entry))
  if (entry.invalid || !act) {
    cell.append(name)
  } else {
    const button = element('button', { type: 'button', className: entry.isFolder ? 'as-link folder' : 'as-link' }, name)
    button.addEventListener('click', act)
    cell.append(button)
  }
  if (entry.invalid) return element('tr', {}, cell, element('td', { colSpan: 3, className: 'muted' }, 'This name is not valid, so it cannot be opened.'))
  if (entry.isFolder) return element('tr', {}, cell, element('td', {}), element('td', {}), element('td', {}))
  return element('tr', {}, cell, element('td', { className: 'number' }, bytesText(entry.size)),
    element('td', { className: 'minor' }, entry.modified === undefined ? '' : timeElement(entry.modified, true)), actionsOf(entry))
}

let entries = [] // of the folder that is shown
let view = new AbortController() // ends with the folder that is shown

function more() {
  const rows = part('rows')
  rows.append(...entries.slice(rows.children.length, rows.children.length + rowsAtOnce).map(rowOf))
  part('more').hidden = rows.children.length >= entries.length
}
part('more').firstElementChild.addEventListener('click', more)

function list(next) {
  entries = next
  part('rows').replaceChildren()
  more()
  part('table').hidden = !entries.length
  part('empty').hidden = entries.length > 0
  const files = entries.filter((e) => !e.isFolder).length
  say([entries.length - files && nounText(entries.length - files, 'folder'), files && nounText(files, 'file')].filter(Boolean).join(', '))
}

const nameOf = (path) => path === '/' ? `all of ${share.bucket}` : path.slice(path.lastIndexOf('/') + 1)

// crumbs shows the folders from the shared one to the one that is shown.
function crumbs(path) {
  const nav = part('crumbs')
  nav.replaceChildren()
  nav.hidden = path === share.scope
  if (nav.hidden) return
  const above = [share.scope]
  while (above.at(-1) !== path) {
    const start = above.at(-1) === '/' ? 1 : above.at(-1).length + 1
    const end = path.indexOf('/', start)
    above.push(end < 0 ? path : path.slice(0, end))
  }
  for (const folder of above) {
    const name = shownName(nameOf(folder))
    if (folder === path) {
      nav.append(element('span', { tabIndex: -1, ariaCurrent: 'page' }, name))
      return
    }
    const button = element('button', { type: 'button', className: 'as-link' }, name)
    button.addEventListener('click', () => enter(folder))
    nav.append(button, ' / ')
  }
}

// showFolder shows a folder. The folder is in the state of the history only, so that no request and no
// address has it.
async function showFolder(path) {
  view.abort()
  view = new AbortController()
  const { signal } = view
  part('problem').hidden = true
  part('note').hidden = Boolean(share.plain)
  part('table').hidden = part('empty').hidden = part('more').hidden = true
  part('share').hidden = path !== share.scope // below, the list is what counts
  crumbs(path)
  say(share.plain ? 'Loading the list…' : 'Decrypting the list of names…')
  try {
    const of = share
    const next = of.plain
      ? await of.plain.listFolder(path, (query) => send(of, 'GET', `${encodeURIComponent(of.bucket)}?${query}`, signal))
      : await listFolder(of, path, (key, most) => readNode(of, key, most, signal))
    if (!signal.aborted) list(next)
  } catch (err) {
    if (!signal.aborted) tell(err)
  }
}

async function enter(path) {
  history.pushState({ folder: path }, '')
  await showFolder(path)
  const here = part('crumbs').querySelector('[aria-current]') ?? document.querySelector('#main')
  here.focus()
}

// showFile shows the one object of a share, whose metadata tells its size.
async function showFile(of, signal) {
  if (!of.plain && !isStorageKey(of.storageKey)) throw new Refusal('place')
  const answer = await request(of, 'HEAD', of.storageKey, signal)
  const object = of.plain ? of.plain.openObject(answer.headers) : await openObject(of, of.scope, of.storageKey, answer.headers)
  if (signal.aborted) return
  list([{ name: nameOf(of.scope), path: of.scope, storageKey: of.storageKey, size: object.size, modified: object.modified }])
  part('rows').querySelector('.actions button').className = 'main'
}

// openAny opens the fragment of a link. A link to content that is not encrypted needs another module, which
// the result has as plain.
async function openAny(fragment) {
  const values = new URLSearchParams(fragment)
  if (values.get('v') === '2') {
    const plain = await import('./plain.js').catch(() => { throw new Refusal('network') })
    return { ...plain.openLink(values), plain }
  }
  if (!globalThis.isSecureContext) throw new Refusal('secure')
  return openLink(fragment, Math.floor(Date.now() / 1000))
}

// start opens the link of the page. A link that is opened meanwhile ends it, so that the page never has
// something of both.
async function start() {
  view.abort()
  view = new AbortController()
  const { signal } = view
  leave()
  dialog.close()
  for (const name of ['share', 'note', 'problem', 'command', 'crumbs', 'table', 'more', 'empty']) part(name).hidden = true
  say('Opening the link…')
  try {
    const opened = await openAny(location.hash.slice(1))
    if (signal.aborted) return
    share = opened
    const name = shownName(nameOf(share.scope))
    part('name').textContent = document.title = name
    part('kind').textContent = share.isFolder ? 'Folder' : 'File'
    part('path').textContent = shownName(share.plain ? `${share.bucket}${share.scope}` : share.scope)
    for (const by of page.querySelectorAll('[data-by]')) by.hidden = Boolean(share.plain)
    part('owner').textContent = share.owner ?? ''
    part('expires').replaceChildren(share.expires ? timeElement(share.expires) : 'the owner revokes it')
    showUntil(true)
    if (!share.access) throw new Refusal('access')
    if (!/^[\x21-\x7e]+$/.test(share.access)) throw new Refusal('link')
    if (!/^[a-z0-9][a-z0-9.-]+$/.test(share.bucket)) throw new Refusal('place')
    part('share').hidden = false
    part('note').hidden = Boolean(share.plain)
    if (!share.isFolder) return await showFile(share, signal)
    history.replaceState({ folder: share.scope }, '')
    await showFolder(share.scope)
  } catch (err) {
    if (!signal.aborted) tell(err)
  }
}

addEventListener('popstate', (e) => { if (e.state?.folder) showFolder(e.state.folder) })
addEventListener('hashchange', start)
start()
