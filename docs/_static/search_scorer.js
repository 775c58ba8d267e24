// The order of search results: pages that explain come before the reference of names.
var Scorer = {
  score: function (result) {
    var page = result[0], score = result[4];
    if (page.indexOf("guide/") === 0 || page.indexOf("tutorials/") === 0) return score + 20;
    if (page.indexOf("development/") === 0 || page.indexOf("paper/") === 0) return score - 10;
    return score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
