import {Webhook} from 'standardwebhooks'
import {type WebhookEvent, webhookEventSchema} from '../contract/webhook.ts'

/** Headers as Node's `http` or the Fetch API has them. */
export type WebhookHeaders = Headers | Record<string, string | string[] | undefined>

function textsOf(headers: WebhookHeaders): Record<string, string> {
  const entries = headers instanceof Headers ? [...headers] : Object.entries(headers)
  return Object.fromEntries(entries.map(([name, value]) => [name.toLowerCase(), String(value)]))
}

/**
 * Reads a notification of the service, signed by Standard Webhooks.
 *
 * @param body the text of the request's body, as it came
 * @param secret `whsec_…` of the endpoint
 * @throws WebhookVerificationError when the signature is not of this secret, or older than five minutes
 */
export function verifyWebhook(body: string, headers: WebhookHeaders, secret: string): WebhookEvent {
  return webhookEventSchema.parse(new Webhook(secret).verify(body, textsOf(headers)))
}
