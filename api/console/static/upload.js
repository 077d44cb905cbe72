// Uploads of files and folders: several at a time, large files in parts, with progress, pause,
// resume and cancel. Without it the form sends the files by itself.

import { bytesText, countText, nounText } from './format.js'

const card = document.querySelector('#upload')
const form = card.querySelector('form')
const token = form.elements.form_token.value
const { bucket, prefix } = card.dataset
const large = Number(card.dataset.large)
const atOnce = 3
const tries = 3
const maxParts = 10000
const part = (name) => card.querySelector(`[data-${name}]`)

let waiting = [] // files that have not begun: {file, key, sent}
let failed = [] // {key, reason, file}; a file that could not be read is missing
let stored = 0
let total = 0 // bytes of all files
let done = 0 // bytes of the files that have ended
let paused = false
let cancelled = false
const active = new Map() // file -> its line in the list
const requests = new Set()
let wake = [] // those who wait for the end of the pause

class Failed extends Error {
  constructor(reason, again) {
    super(reason)
    this.again = again // it may go well at another time
  }
}

const path = (what, query) => `${bucket}/${what}?${new URLSearchParams(query)}`

// send makes one request; progress gets the bytes that have gone.
function send(method, url, body, type, progress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest()
    requests.add(request)
    request.open(method, url)
    request.setRequestHeader('X-Form-Token', token)
    if (type) request.setRequestHeader('Content-Type', type)
    if (progress) request.upload.onprogress = (e) => progress(e.loaded)
    request.onload = () => {
      if (request.status < 300) return resolve(request.responseText)
      reject(new Failed(request.responseText || `the answer is ${request.status}`, request.status === 429 || request.status >= 500))
    }
    request.onerror = () => reject(new Failed('the node cannot be reached', true))
    request.onabort = () => reject(new Failed('stopped', true))
    request.onloadend = () => requests.delete(request)
    request.send(body)
  })
}

const goesOn = () => paused && !cancelled ? new Promise((resolve) => wake.push(resolve)) : Promise.resolve()

// patiently repeats what fails; a pause is no failure.
async function patiently(step) {
  for (let tried = 1; ; ) {
    await goesOn()
    if (cancelled) throw new Failed('cancelled', false)
    try {
      return await step()
    } catch (e) {
      if (cancelled) throw new Failed('cancelled', false)
      if (paused) continue
      if (!e.again || tried === tries) throw e
      await new Promise((resolve) => setTimeout(resolve, 1000 * tried))
      tried++
    }
  }
}

// whole sends a file by one request.
const whole = (item) => patiently(() =>
  send('PUT', path('object', { key: item.key }), item.file, item.file.type, (n) => { item.sent = n; show() }))

// parts sends a file in slices, so that the browser has only one in memory.
async function parts(item) {
  const { file, key } = item
  const size = Math.max(Number(card.dataset.part), Math.ceil(file.size / maxParts))
  const id = await patiently(() => send('POST', path('uploads', { key }), null, file.type))
  const upload = `uploads/${encodeURIComponent(id)}`
  try {
    for (let n = 0; n * size < file.size; n++) {
      const slice = file.slice(n * size, (n + 1) * size)
      await patiently(() => send('PUT', path(upload, { key, part: n + 1 }), slice, '', (sent) => { item.sent = n * size + sent; show() }))
      item.sent = n * size + slice.size
    }
    await patiently(() => send('POST', path(`${upload}/complete`, { key, size: file.size })))
  } catch (e) {
    await send('DELETE', path(upload, { key })).catch(() => {}) // else the node discards it later
    throw e
  }
}

async function worker() {
  for (let item = waiting.shift(); item; item = waiting.shift()) {
    active.set(item, line(item))
    try {
      await (item.file.size > large ? parts(item) : whole(item))
      stored++
    } catch (e) {
      fail(item.key, e.message, item.file)
    }
    active.get(item).remove()
    active.delete(item)
    done += item.file.size
    show()
  }
}

function line(item) {
  const li = document.createElement('li')
  const name = document.createElement('bdi')
  name.textContent = item.key.slice(prefix.length)
  const bar = document.createElement('progress')
  bar.setAttribute('aria-label', name.textContent)
  li.append(bar, name)
  part('active').append(li)
  return li
}

// maxShown bounds the list of what failed.
const maxShown = 500

function fail(key, reason, file) {
  failed.push({ key, reason, file })
  if (failed.length > maxShown) return
  const li = document.createElement('li')
  const name = document.createElement('bdi')
  name.textContent = key.slice(prefix.length)
  li.append(name, `: ${reason}`)
  part('failed').append(li)
}

let drawing = false
function show() {
  if (drawing) return
  drawing = true
  requestAnimationFrame(() => {
    drawing = false
    let sent = done
    const left = waiting.length + active.size
    for (const [item, li] of active) {
      sent += Math.min(item.sent, item.file.size)
      const bar = li.querySelector('progress')
      bar.max = item.file.size || 1
      bar.value = item.sent
    }
    card.querySelector('progress').value = total ? sent / total : 1
    part('progress').textContent = `${bytesText(sent)} of ${bytesText(total)}, ${nounText(left, 'file')} left${paused ? ', paused' : ''}`
  })
}

let running = null
async function start(files) {
  if (!files.length) return
  if (!running) {
    failed = []
    stored = total = done = 0
    paused = cancelled = false
    part('failed').replaceChildren()
    part('again').hidden = true
    part('summary').textContent = ''
  }
  for (const { file, name } of files) {
    waiting.push({ file, key: prefix + name, sent: 0 })
    total += file.size
  }
  if (running) return show()
  part('transfer').hidden = false
  controls()
  running = Promise.all(Array.from({ length: atOnce }, worker))
  await running
  if (waiting.length) await worker() // added while the last one ended
  running = null
  if (part('transfer').contains(document.activeElement)) form.querySelector('button').focus()
  part('transfer').hidden = true
  part('summary').textContent = `${countText(stored)} stored` + (failed.length ? `, ${countText(failed.length)} not stored:` : '.')
  part('again').hidden = !failed.some((f) => f.file)
  await refresh()
}

// refresh shows what the bucket has now.
async function refresh() {
  const answer = await fetch(location.href)
  if (!answer.ok) return
  const page = new DOMParser().parseFromString(await answer.text(), 'text/html')
  const listing = page.querySelector('#listing')
  if (listing) document.querySelector('#listing').replaceWith(listing)
}

function controls() {
  part('pause').hidden = paused
  part('resume').hidden = !paused
  show()
}
part('pause').addEventListener('click', () => {
  paused = true
  controls()
  for (const request of requests) request.abort()
  part('resume').focus()
})
function goOn() {
  paused = false
  controls()
  for (const go of wake) go()
  wake = []
}
part('resume').addEventListener('click', () => { goOn(); part('pause').focus() })
part('cancel').addEventListener('click', () => {
  cancelled = true
  for (const item of waiting) fail(item.key, 'cancelled', item.file)
  waiting = []
  for (const request of requests) request.abort()
  goOn()
})

part('again').addEventListener('click', () => {
  start(failed.filter((f) => f.file).map(({ key, file }) => ({ file, name: key.slice(prefix.length) })))
  part('pause').focus()
})

const chosen = (input) => Array.from(input.files, (file) => ({ file, name: file.webkitRelativePath || file.name }))
form.addEventListener('submit', (e) => {
  e.preventDefault()
  const files = [...form.querySelectorAll('[type=file]')].flatMap(chosen)
  form.reset()
  if (!files.length && !running) part('summary').textContent = 'Choose files or a folder first.'
  start(files)
})

// filesOf are the files of something that was dropped, with those in its folders.
async function filesOf(entry) {
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => entry.file(resolve, reject))
    return [{ file, name: entry.fullPath.slice(1) }]
  }
  const reader = entry.createReader()
  const all = []
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject))
    if (!some.length) return all
    for (const e of some) all.push(...await filesOf(e))
  }
}

part('hint').hidden = false
const hasFiles = (e) => e.dataTransfer?.types.includes('Files')
addEventListener('dragover', (e) => {
  if (!hasFiles(e)) return
  e.preventDefault()
  card.classList.add('over')
})
addEventListener('dragleave', (e) => { if (!e.relatedTarget) card.classList.remove('over') })
addEventListener('drop', async (e) => {
  if (!hasFiles(e)) return
  e.preventDefault()
  card.classList.remove('over')
  // The list is empty once this function waits.
  const entries = [...e.dataTransfer.items].map((item) => item.webkitGetAsEntry()).filter(Boolean)
  const files = []
  const unread = []
  for (const entry of entries) {
    try {
      files.push(...await filesOf(entry))
    } catch (err) {
      unread.push([prefix + entry.fullPath.slice(1), err.message])
    }
  }
  start(files)
  for (const [key, reason] of unread) fail(key, reason)
})
addEventListener('beforeunload', (e) => { if (running) e.preventDefault() })
