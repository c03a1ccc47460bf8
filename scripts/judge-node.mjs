/* Compares a version of Node with `engines` of package.json. */

/** @param version  such as 22.12.0
 * @param range     such as ^20.19.0 || ^22.12.0
 * @returns verdict: 'tested', 'untested' (a release line that is not in the range) or 'too old';
 *   line: what to tell the user */
export function judgeNode(version, range) {
  const parse = (text) => text.split('.').map(Number);
  const [major, minor, patch] = parse(version);
  const oldest = range.split('||').map((part) => parse(part.trim().replace('^', '')));
  const wanted = oldest.map((numbers) => numbers.join('.')).join(', ');
  const same = oldest.find(([line]) => line === major);
  const isOlder = ([, otherMinor, otherPatch]) =>
    minor < otherMinor || (minor === otherMinor && patch < otherPatch);
  if (major < oldest[0][0] || (same !== undefined && isOlder(same)))
    return {
      verdict: 'too old',
      line: `Node ${version} is too old: install one of ${wanted}, or a later one of the same line`,
    };
  if (same === undefined)
    return {
      verdict: 'untested',
      line: `sutler is not tested with Node ${version}; use the line of one of ${wanted}`,
    };
  return { verdict: 'tested', line: '' };
}
