import packageJson from '../package.json' with {type: 'json'}

/** This program's version: `0.1.0`. */
export const VERSION = packageJson.version

/** This program and its version, as manifests name it. */
export const GENERATOR = `loantape ${VERSION}`
