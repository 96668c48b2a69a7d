import {codeOf, LoantapeError, messageOf, newError} from '../errors.ts'

/** Where the words of an error say the server is: `db.example.com:5432/reporting`, never user or password. */
export function describeServer(url: string): string {
  if (!URL.canParse(url)) return 'the server in LOANTAPE_POSTGRES_URL'
  const {hostname, port, pathname} = new URL(url)
  return `${hostname}:${port || '5432'}${pathname}`
}

/** Anything thrown while publishing, in our words. Codes: PostgreSQL, appendix A. */
export function explainPostgres(error: unknown, server: string): LoantapeError {
  if (error instanceof LoantapeError) return error
  const code = codeOf(error)
  const words = messageOf(error).split('\n')[0] ?? ''
  const more = {cause: error}
  if (/^(28P01|28000)$/.test(code) || /password must be a string/.test(words))
    return newError('PUBLISH_AUTH', `PostgreSQL at ${server} refused user or password (${code}).`, more)
  if (/does not support SSL/.test(words) || /CERT|UNABLE_TO_VERIFY|ERR_TLS|ERR_SSL/.test(code))
    return newError('POSTGRES_TLS', `PostgreSQL at ${server} cannot be trusted: ${words}.`, more)
  const refused = `PostgreSQL at ${server} refused: ${words} (${code}).`
  if (code === '42501')
    return newError('PUBLISH_PRIVILEGE', refused, {
      ...more,
      next: 'Grant the user CREATE on the database, or let it own the schemas core, mart and accounting.',
    })
  if (code === '3D000' || code === '42704') return newError('POSTGRES_UNKNOWN_NAME', refused, more)
  if (/^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT|57P03)$/.test(code))
    return newError('PUBLISH_UNREACHABLE', `PostgreSQL at ${server} cannot be reached (${code}).`, more)
  const isLost = /^(57P0.|08...|ECONNRESET|EPIPE)$/.test(code)
  if (isLost || /terminated|timeout expired|not queryable/.test(words))
    return newError('PUBLISH_LOST', `The connection to PostgreSQL at ${server} was lost.`, more)
  return newError('PUBLISH_FAILED', refused, more)
}
