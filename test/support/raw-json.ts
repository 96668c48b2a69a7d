declare global {
  interface JSON {
    rawJSON(text: string): unknown
  }
}

/** A value that `JSON.stringify` writes as this text: a number with more digits than JavaScript can hold. */
export const rawJson = (text: string): unknown => JSON.rawJSON(text)
