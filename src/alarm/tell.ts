import {request} from 'undici'
import type {Config} from '../config.ts'
import {messageOf} from '../errors.ts'
import {claimNotice, recordSending, settleAlarms} from '../ledger/alarms.ts'
import type {Ledger} from '../ledger/ledger.ts'
import {scrubSecrets} from '../log.ts'
import type {World} from '../types.ts'
import {createChannels} from './channel.ts'
import {readConditions} from './conditions.ts'

/**
 * Tells people what has changed since they were last told: one message per change of state and channel. What cannot be
 * sent now is sent by a later call.
 */
export async function tellPeople(ledger: Ledger, config: Config, world: World): Promise<void> {
  const channels = createChannels(config)
  const names = channels.map(({name}) => name)
  const now = world.realClock.now()
  settleAlarms(ledger, {conditions: readConditions(ledger, config, now), channels: names}, now)
  for (;;) {
    const notice = claimNotice(ledger, names, now)
    const channel = channels.find(({name}) => name === notice?.channel)
    if (!notice || !channel) return
    try {
      await channel.send(notice)
      recordSending(ledger, notice, null, world.realClock.now())
    } catch (error) {
      const reason = scrubSecrets(messageOf(error))
      world.log.warn({reason}, `an alarm could not be sent by ${channel.name}; it is tried again`)
      recordSending(ledger, notice, reason, world.realClock.now())
    }
  }
}

const TIMEOUT_MS = 10_000

/** Tells the service that notices our silence that all is well; whether it hears is not our run's business. */
export async function pingDeadMan({deadManUrl}: Config, {log}: World): Promise<void> {
  if (deadManUrl === undefined) return
  try {
    const {statusCode, body} = await request(deadManUrl, {
      headersTimeout: TIMEOUT_MS,
      bodyTimeout: TIMEOUT_MS,
    })
    await body.dump()
    if (statusCode >= 300) log.warn({status: statusCode}, 'the dead-man check did not take the ping')
  } catch (error) {
    log.warn({reason: scrubSecrets(messageOf(error))}, 'the dead-man check could not be reached')
  }
}
