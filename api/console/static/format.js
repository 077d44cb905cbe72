// Texts of values, as format.go writes them for the same values in the pages of the server.
// testdata/texts.json has what both have to write.

// fixed writes a number with so many digits behind the point. In the middle between two numbers
// it takes the one with the even last digit, as fmt of Go does and toFixed does not.
function fixed(value, digits) {
  const unit = 10 ** digits
  const below = Math.floor(value * unit)
  return value * unit - below === 0.5 ? ((below + below % 2) / unit).toFixed(digits) : value.toFixed(digits)
}

// bytesText returns a size for people, in units of 1,024.
export function bytesText(n) {
  if (n < 1024) return `${n} B`
  let unit = 0
  for (; n >= 1024 && unit < 6; unit++) n /= 1024
  return `${fixed(n, n >= 100 ? 0 : 1).replace(/\.0$/, '')} ${'KMGTPE'[unit - 1]}iB`
}

// countText returns a whole number with separators between groups of three digits.
export const countText = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ',')

// nounText returns a number of things, whose noun has a plural with s.
export const nounText = (n, noun) => `${countText(n)} ${noun}${n === 1 ? '' : 's'}`

// percentText returns a part of a whole; all of nothing is 100 %.
export const percentText = (part, whole) => `${whole ? Math.floor(100 * part / whole) : 100} %`

// spanText returns a duration in seconds, in its largest unit.
export function spanText(seconds) {
  for (const [unit, noun] of [[86400, 'day'], [3600, 'hour'], [60, 'minute']]) {
    const n = Math.floor(seconds / unit)
    if (n > 0) return `${n} ${noun}${n === 1 ? '' : 's'}`
  }
  return 'less than a minute'
}

// agoText returns for how many seconds something has been so.
export function agoText(seconds) {
  if (seconds < -60) return 'in the future'
  return seconds < 60 ? 'just now' : `${spanText(seconds)} ago`
}

const isoText = (seconds) => new Date(seconds * 1000).toISOString().replace(/\.\d+Z$/, 'Z')

// utcText returns a time, in seconds since 1970, with its zone.
export const utcText = (seconds) => `${isoText(seconds).slice(0, -1).replace('T', ' ')} UTC`

// timeElement returns a time as the templates "until" and "when" write it: the time itself, or how
// long ago it was with the time in the title. It returns '' for a number that is no time.
export function timeElement(seconds, relative) {
  if (Number.isNaN(new Date(seconds * 1000).valueOf())) return ''
  const time = document.createElement('time')
  time.dateTime = isoText(seconds)
  time.textContent = utcText(seconds)
  if (relative) {
    time.title = time.textContent
    time.textContent = agoText(Date.now() / 1000 - seconds)
  }
  return time
}
