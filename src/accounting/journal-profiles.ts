import {TABLE_PROFILE_NAMES} from '../export/batch.ts'
import {intacct} from './intacct.ts'
import type {JournalProfile} from './journal.ts'
import {netsuite} from './netsuite.ts'
import {quickbooks} from './quickbooks.ts'
import {xero} from './xero.ts'

const PROFILES = [quickbooks, xero, netsuite, intacct]

/** The names of the journal kinds of export. */
export const JOURNAL_NAMES: readonly string[] = PROFILES.map(({name}) => name)

/** The names of the kinds of export. */
export const PROFILE_NAMES: readonly string[] = [...TABLE_PROFILE_NAMES, ...JOURNAL_NAMES]

/** The journal kind of export of this name, if it is one. */
export function findJournalProfile(name: string): JournalProfile | undefined {
  return PROFILES.find((profile) => profile.name === name)
}
