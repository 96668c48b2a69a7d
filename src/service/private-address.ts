import {type LookupAddress, type LookupOptions, lookup as systemLookup} from 'node:dns'
import {BlockList, isIP, type LookupFunction} from 'node:net'

/** Finds the addresses of a name; `dns.lookup` unless a test brings its own. */
export type AddressLookup = (
  name: string,
  options: LookupOptions & {all: true},
  callback: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void

/** Keeps notifications away from networks that only this machine can reach (server-side request forgery). */
export type AddressGuard = ReturnType<typeof createAddressGuard>

// https://www.iana.org/assignments/iana-ipv4-special-registry and …/iana-ipv6-special-registry
const PRIVATE: readonly [network: string, prefix: number][] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 3],
  ['::', 127],
  ['64:ff9b::', 96],
  ['64:ff9b:1::', 48],
  ['100::', 64],
  ['2001::', 23],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['3fff::', 20],
  ['fc00::', 7],
  ['fe80::', 9],
  ['ff00::', 8],
]

const blocked = new BlockList()
for (const [network, prefix] of PRIVATE)
  blocked.addSubnet(network, prefix, network.includes(':') ? 'ipv6' : 'ipv4')

/** Whether an IP address belongs to a network that is not the public internet; IPv4 in IPv6 counts as IPv4. */
export function isPrivateAddress(address: string): boolean {
  return blocked.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4')
}

/** Creates the guard; with `allowPrivate` it lets every address and plain http pass. */
export function createAddressGuard(options: {allowPrivate: boolean; lookup?: AddressLookup}) {
  const {allowPrivate, lookup = systemLookup} = options
  const isRefused = (address: string): boolean => !allowPrivate && isPrivateAddress(address)

  const findAddresses = (name: string): Promise<string[] | null> =>
    new Promise((resolve) => {
      lookup(name, {all: true}, (error, found) => {
        resolve(error ? null : found.map(({address}) => address))
      })
    })

  /** A lookup for sockets: it fails where a name leads to a private address, also when it did not before. */
  const guardedLookup: LookupFunction = (name, lookupOptions, callback) => {
    lookup(name, {...lookupOptions, all: true}, (error, found) => {
      const refused = found?.some(({address}) => isRefused(address))
      const [first] = found ?? []
      if (error) callback(error, '')
      else if (refused || !first) callback(new Error('the host leads to a private address'), '')
      else if (lookupOptions.all) callback(null, found)
      else callback(null, first.address, first.family)
    })
  }

  return {
    /** Why notifications cannot go to this URL, or null. */
    async findProblem(text: string): Promise<string | null> {
      const {protocol, hostname, username, password} = new URL(text)
      if (username !== '' || password !== '') return 'expected a URL without a user name or password'
      if (allowPrivate) return null
      if (protocol !== 'https:') return 'expected an https URL'
      const host = hostname.replace(/^\[|\]$/g, '')
      const addresses = isIP(host) ? [host] : await findAddresses(host)
      if (addresses === null || addresses.length === 0) return 'expected a host that can be resolved'
      return addresses.some(isRefused) ? 'expected a host on the public internet' : null
    },
    lookup: guardedLookup,
  }
}
