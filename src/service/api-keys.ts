import {createHash, timingSafeEqual} from 'node:crypto'
import {ConfigError} from '../errors.ts'
import {buildProblem, Refusal} from './problem-reply.ts'

const KEY_FORM = /^sk_(live|test)_[A-Za-z0-9_-]+$/

function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}

/**
 * Creates the check of an `Authorization` header; it returns the name of the key's own rate-limit bucket.
 *
 * @param apiKeys `sk_live_…` or `sk_test_…`, at least one
 * @throws ConfigError when a key has another form; the check itself throws a Refusal (401)
 */
export function createKeyCheck(apiKeys: readonly string[]): (authorization: string | undefined) => string {
  if (apiKeys.length === 0 || !apiKeys.every((key) => KEY_FORM.test(key)))
    throw new ConfigError({
      code: 'SERVICE_API_KEY',
      problem: 'An API key of the service is missing or has the wrong form: expected sk_live_… or sk_test_….',
      next: 'Give at least one key that begins with sk_test_.',
    })
  const digests = apiKeys.map(digestOf)

  return (authorization) => {
    const token = /^Bearer +(.*)$/i.exec(authorization ?? '')?.[1]
    if (token === undefined) throw refuseKey('unauthorized', 'Bearer realm="deals"')
    const sent = digestOf(token)
    // Every digest is compared, so that the time says nothing about which one matched.
    const matches = digests.filter((digest) => timingSafeEqual(digest, sent))
    if (matches.length === 0) throw refuseKey('invalid_token', 'Bearer realm="deals", error="invalid_token"')
    return sent.toString('hex')
  }
}

function refuseKey(code: string, challenge: string): Refusal {
  const detail = 'Send an API key: Authorization: Bearer sk_live_… or sk_test_….'
  return new Refusal(buildProblem({status: 401, code, detail}), {'WWW-Authenticate': challenge})
}
